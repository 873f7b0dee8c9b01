"""The report stage: what the run found, for someone who was not there. Runs without torch."""

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import ReadOnce
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import in_lines
from inductor_debug.stages.report.collect import collect
from inductor_debug.stages.report.declaration import DECLARATION
from inductor_debug.stages.report.html import purpose
from inductor_debug.stages.report.render import render


class ReportStage(Stage):
    """Reads what the other stages stored, whatever became of them, and writes ``report/report.{html,json}``."""

    declaration = DECLARATION

    def run(self, context: StageContext) -> StageResult:
        """Always passes: a missing artifact is said in the report, not an error of it.

        Its message has the page, the run in a sentence, and the commands to type next, a line each.
        """
        options = self.config
        artifacts = ReadOnce(context.artifacts)
        data = collect(
            artifacts, context.settings, title=options.title, max_rows=options.max_rows, folder=context.folder
        )
        html = render(data, artifacts)
        return StageResult(
            "passed",
            in_lines(f"The page is {files.REPORT_PAGE.path}.", data["sentence"], *map(_with_purpose, data["then"])),
            artifacts={files.REPORT_PAGE.path: html, files.REPORT.path: {"schema": 1, **data}},
        )


def _with_purpose(command: str) -> str:
    """A command, and in brackets what it is for."""
    what = purpose(command)
    return f"{command} ({what[0].lower()}{what[1:]})" if what else command
