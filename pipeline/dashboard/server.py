"""Starts Streamlit's server on the page, on this machine's own address alone."""

import importlib.util
import os
import sys
from pathlib import Path

from inductor_debug.models.errors import UserError

PAGE = Path(__file__).with_name("app.py")
ADDRESS = "127.0.0.1"
EXTRA = "inductor-debug[dashboard]"


def command(root: Path, port: int, *, opens: bool) -> list[str]:
    """The server's command.

    Args:
        root: the folder of runs.
        port: of the server.
        opens: whether it opens a browser.

    Raises:
        UserError: Streamlit is not installed.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise UserError("Streamlit is not installed", key="dashboard", valid=f"the extra {EXTRA}",
                        hint=f"pip install '{EXTRA}'")  # fmt: skip
    options = {
        "server.address": ADDRESS,
        "server.port": port,
        "server.headless": not opens,
        "runner.magicEnabled": False,
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "theme.primaryColor": "#1d5fc2",
        "client.showErrorDetails": "none",
    }
    flags = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", __package__, "run", str(PAGE), *flags, "--", str(root)]


def serve(root: Path, port: int, *, opens: bool) -> None:
    """Become the server; arguments and errors as of :func:`command`."""
    words = command(root, port, opens=opens)
    os.execv(words[0], words)
