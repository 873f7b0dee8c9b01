"""A command whose standard streams are a terminal, and what that was sent."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[\d;]+)(?:;\d+)*m")
"""A letter's color; bold and dim are none."""
ESCAPE = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


def command(words: Sequence[str], module: str = "inductor_debug") -> list[str]:
    return [sys.executable, "-m", module, *words]


def environment(columns: int = 120, **more: str) -> dict[str, str]:
    """Of a terminal with colors, that wide."""
    unset = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": str(columns)} | more


def shown(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of a command, and what its terminal was sent on both streams, lines ended by a newline alone."""
    main, child = pty.openpty()
    with subprocess.Popen(
        command(words), stdin=subprocess.DEVNULL, stdout=child, stderr=child, cwd=cwd, env=env
    ) as process:
        os.close(child)
        sent = sent_to(main)
        code = process.wait(timeout=300)
    os.close(main)
    return code, sent.decode().replace("\r\n", "\n")


def sent_to(main: int) -> bytes:
    """All that a terminal is sent until its other end is closed."""
    sent = b""
    try:
        while part := os.read(main, 4096):
            sent += part
    except OSError:  # the other end was closed
        pass
    return sent


def plain(text: str) -> str:
    """What is read, without colors and moves of the cursor."""
    return ESCAPE.sub("", text)


def piped(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """The same command with pipes for its streams."""
    return subprocess.run(command(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd, env=env,
                          timeout=300)  # fmt: skip
