"""Whether the result that a run's directory holds stands: the run came to its end, and would come to the same again.

A sweep that is started again, by a person, by SLURM or by Ray, passes over the jobs of which that is so.
"""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.models.shapes import Mismatch, reader
from inductor_debug.models.stored import read_json
from inductor_debug.pipeline.directory import manifest, summary
from inductor_debug.pipeline.directory.names import LOG, MANIFEST
from inductor_debug.pipeline.directory.records import FullManifest, RunDescription
from inductor_debug.pipeline.directory.refusals import Owner
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.pipeline.run.parent.environment import for_reproduction, worker_environment
from inductor_debug.pipeline.run.plan import ALWAYS_LAST, Plan, execution_order, settings_of
from inductor_debug.pipeline.run.processes.reuse import Reuse
from inductor_debug.stages.artifacts.records import Run, StageRecord


class Standing:
    """Looks at the result of an earlier run of the same configuration.

    Args:
        config: as for :func:`pipeline.run.runner.run`.
        cache: folder of the results that need not be made again.
        in_sweep: whether it is a job of a sweep, which takes any run's results.

    Attributes:
        code: exit code that goes with the result, once it was found to stand.
        why: of a result that was looked at and does not stand, why not.
    """

    def __init__(self, config: Any, cache: Path, *, in_sweep: bool) -> None:
        self.config, self.cache, self.in_sweep = config, cache, in_sweep
        self.code = summary.EXIT_PASSED
        self.why = ""

    def __call__(self, path: Path, owner: Owner) -> bool:
        """True where every stage has a result that would come out the same, and no file was changed since."""
        directory = RunDirectory(path, identity=owner.identity)
        try:
            stored: FullManifest = reader(FullManifest)(read_json(path / MANIFEST, root=path))
            records = directory.stage_records()
        except (UserError, OSError, ValueError, Mismatch):  # it has none, or a damaged one
            return False
        order = execution_order(self.config.stages)
        if stored.identity != owner.identity or list(records) != sorted(order):
            return False
        written = {name: sha256 for name, sha256 in directory.sha256().items() if name != LOG}
        listed = {name: sha256 for name, sha256 in stored.files.items() if name != LOG}
        changed = sorted(name for name in {*written, *listed} if written.get(name) != listed.get(name))
        if changed:
            self.why = f"{changed[0]} is not as its run left it"
            return False
        crashed = next((records[name] for name in order if records[name].status == summary.CRASHED), None)
        if crashed is not None:
            reason, _, _ = crashed.message.partition("\n")
            self.why = f"{crashed.name} crashed ({reason})"
            return False
        reuse = self._looked_up(directory, stored, order)
        self.code = summary.exit_code(records.values())
        unfinished = [name for name in order if not (_ended(records[name]) or reuse.stands(records[name], listed))]
        if unfinished:
            self.why = reuse.why_not(records[unfinished[0]], listed)
        return not unfinished

    def _looked_up(self, directory: RunDirectory, stored: FullManifest, order: list[str]) -> Reuse:
        settings, environment = settings_of(self.config), worker_environment(directory.path)
        fields = {item.name: getattr(stored, item.name) for item in dataclasses.fields(RunDescription)}
        here = {"versions": manifest.installed_versions(), "machine": manifest.describe_machine()}
        plan = Plan(
            directory=str(directory.path),
            settings=settings,
            stages={name: self.config.stages[name] for name in order},
            run=Run(),
            remaining=order,
            reproduction=for_reproduction(settings, environment),
            described=RunDescription(**fields | here),
            cache=str(self.cache),
            own_results=self.config.runner.cache is None and not self.in_sweep,
        )
        path = [*sys.path, *([] if os.getcwd() in sys.path else [os.getcwd()])]
        reuse = Reuse(plan, directory, environment, lambda stage, text: None, watching=False, path=path)
        reuse.look(order)
        return reuse


def _ended(record: StageRecord) -> bool:
    """Whether a record is of a stage without a result of its own: the report, or one that was skipped."""
    if record.name == ALWAYS_LAST:
        return record.status == summary.PASSED
    return record.status == summary.SKIPPED
