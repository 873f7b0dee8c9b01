"""What a report says, as data: read from what the stages stored, with what is missing named."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import stage_note
from inductor_debug.stages.registry import declared
from inductor_debug.stages.report.contents import contents_of, is_empty, led_by, sentence_of
from inductor_debug.stages.report.sections import ReportedRun, sections
from inductor_debug.stages.settings import Settings


def collect(
    artifacts: Artifacts, settings: Settings, *, title: str | None, max_rows: int, folder: Path | None = None
) -> dict[str, Any]:
    """Everything the report shows.

    Args:
        artifacts: what the run's stages stored; ``summary.json`` in its preliminary form, if the runner gave one.
        settings: the run's settings, used where ``summary.json`` does not tell.
        title: heading; made from the run where it is None.
        max_rows: rows kept of each table; ``rows_total`` says how many there are and ``file`` where.
        folder: of the run, for the commands that the report proposes; None: they name it by its id.

    Returns:
        A JSON-able dict: ``title, verdict, run, compiled_by, versions, stages``, the data of each section under its
        key, ``address, repros, reproduce, files, contents, findings, not_established, sentence, then``. ``address``
        names the run on a command line. ``contents`` has what
        each section answers (:class:`~stages.report.contents.Entry`), ``findings`` the sentences among them, and
        ``then`` the commands to type next.
    """
    summary, manifest = _plain(artifacts, files.SUMMARY.path), _plain(artifacts, files.MANIFEST.path)
    run = {**_run_of(settings), **summary.get("run", {})}
    if "seconds" in run:  # the run isn't over: summary.json's final figure has the report's time in it too
        run["seconds_before_report"] = run.pop("seconds")
    stages = [stage for stage in summary.get("stages", []) if stage.get("name") != "report"]
    address = _address(run, folder)
    again = [f"inductor-debug rerun {address}"] if run.get("id") else []
    reported = ReportedRun(artifacts, summary, max_rows)
    shown = sections()
    data: dict[str, Any] = {
        "title": title or f"{run['model']} on {run['accel']}, {run['backend']}",
        "verdict": _verdict(summary, stages),
        "run": run,
        "compiled_by": summary.get("compiled_by") or {},
        "versions": _versions(manifest),
        "stages": stages,
        **{key: item.section.collect(reported) for key, item in shown.items()},
        "repros": summary.get("repros") or [],
        "address": address,
        "reproduce": [typed(run, (summary.get("compiled_by") or {}).get("variables") or {}), *again],
        "files": artifacts.names(),
    }
    contents = contents_of(shown, data)
    data["contents"] = contents
    data["findings"] = [entry.text for entry in contents if entry.text]
    notes = [note for key, item in shown.items() for note in item.section.not_established(data[key], data)]
    data["not_established"] = [*_missing(data), *notes]
    data["sentence"] = sentence_of(run, data["verdict"], contents, stages)
    data["then"] = led_by(contents, data["address"])
    return data


def _address(run: Mapping[str, Any], folder: Path | None) -> str:
    """What names the run on a command line that is typed where the run's was."""
    if folder is None:
        return shlex.quote(str(run.get("id") or "RUN"))
    here = Path.cwd()
    return shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))


def _plain(artifacts: Artifacts, name: str) -> Mapping[str, Any]:
    """A file with all of its keys; empty where it is not stored."""
    try:
        found: Mapping[str, Any] = artifacts.read_json(name)
    except FileNotFoundError:
        return {}
    return found


def typed(run: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The command that makes a run again as it was typed, with the variables that matter.

    Args:
        run: of ``summary.json``.
        variables: of the environment.
    """
    overrides = [str(item) for item in run.get("overrides") or []]
    flags = [str(item) for item in run.get("flags") or []]
    words = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return " ".join([*words, shlex.join(["inductor-debug", "run", *flags, *overrides])])


def _missing(data: Mapping[str, Any]) -> list[str]:
    """What this run can't say, since the stage that would tell did not end or stored nothing, one sentence each."""
    notes = []
    statuses = {stage.get("name"): stage.get("status") for stage in data["stages"]}
    for name, stage in declared().items():
        if not stage.subject:
            continue
        if statuses.get(name) not in ("passed", "failed"):
            notes.append(f"{stage.subject}: {stage_note(data['stages'], name)}.")
        elif statuses[name] == "passed" and all(is_empty(data[section.key]) for section in stage.sections):
            notes.append(f"{stage.subject}: the stage {name} passed but stored nothing that this report can show.")
    return notes


def _run_of(settings: Settings) -> Row:
    return {
        "id": None, "model": settings.model.name, "accel": settings.accel.name, "backend": settings.backend.shown,
        "dtype": settings.dtype, "device": settings.device, "mode": settings.mode, "overrides": [],
    }  # fmt: skip


def _verdict(summary: Mapping[str, Any], stages: list[Row]) -> str:
    """The run's verdict; ``not_established`` where no stage has a result."""
    if not any(stage.get("status") in ("passed", "failed", "crashed", "timed_out") for stage in stages):
        return "not_established"
    return str(summary.get("verdict") or "not_established")


def _versions(manifest: Mapping[str, Any]) -> Row:
    versions = dict(manifest.get("versions") or {})
    if manifest.get("git"):
        versions["git"] = manifest["git"]
    return versions
