"""The command that serves the dashboard."""

from pathlib import Path
from typing import Annotated

import typer

from inductor_debug.pipeline.command_line.app import app
from inductor_debug.pipeline.dashboard import server
from inductor_debug.pipeline.directory import store


@app.command(
    "dashboard",
    short_help="all of this in a browser",
    help="Serve a page, on this machine alone, to start runs and to look at stored ones. It needs the extra "
    "inductor-debug[dashboard]. What is started there goes on when the page is closed.",
)
def dashboard_command(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="holds the runs, or will")] = store.OUTPUTS,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="of the page, on 127.0.0.1")] = 8501,
    closed: Annotated[bool, typer.Option("--no-open", help="open no browser")] = False,
) -> int:
    server.serve(folder, port, opens=not closed)
    return 0
