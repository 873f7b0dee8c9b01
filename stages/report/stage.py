"""The report stage: what the run found, for someone who was not there. Runs without torch."""

import logging

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import ReadOnce
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.report.collect import collect
from inductor_debug.stages.report.declaration import DECLARATION
from inductor_debug.stages.report.render import render

log = logging.getLogger(__name__)


class ReportStage(Stage):
    """Reads what the other stages stored, whatever became of them, and writes ``report/report.{html,json}``."""

    declaration = DECLARATION

    def run(self, context: StageContext) -> StageResult:
        """Always passes: a missing artifact is said in the report, not an error of it."""
        options = self.config
        artifacts = ReadOnce(context.artifacts)
        data = collect(
            artifacts, context.settings, title=options.title, max_rows=options.max_rows, folder=context.folder
        )
        html = render(data, artifacts)
        log.info("report: %s", data["sentence"])
        return StageResult(
            "passed",
            files.REPORT_PAGE.path,
            artifacts={files.REPORT_PAGE.path: html, files.REPORT.path: {"schema": 1, **data}},
        )
