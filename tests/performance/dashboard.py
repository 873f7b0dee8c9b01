"""How long the dashboard takes to show many stored runs: seconds until their number stands there, and their table.

Usage: ``python tests/performance/dashboard.py RUN [--runs 1000] [--rounds 3]``. The runs are copies of RUN (links).
Each round opens the page in a new tab of Chromium, the first one's modules not yet cached.
"""

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu"]
START_S = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(address: str) -> None:
    """Until a server answers there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address):
            return
        time.sleep(0.1)
    sys.exit(f"nothing answers at {address}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.run.resolve().parent) as folder:  # of the same file system
        for number in range(options.runs):
            shutil.copytree(options.run, Path(folder, f"day{number % 28}", f"run{number}"), copy_function=os.link)
        port = free_port()
        command = [sys.executable, "-m", "inductor_debug", "dashboard", folder, "--no-open", "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health")
            figures = []
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                for _ in range(options.rounds):
                    page, began = browser.new_page(), time.perf_counter()
                    page.goto(f"http://127.0.0.1:{port}/")
                    page.get_by_text(f"{options.runs} of {options.runs} run").wait_for()
                    counted = time.perf_counter() - began
                    page.get_by_test_id("stDataFrame").first.wait_for()
                    figures.append((counted, time.perf_counter() - began))
                    page.close()
                browser.close()
        finally:
            server.kill()
            server.wait()
    counted, drawn = (statistics.median(column) for column in zip(*figures, strict=True))
    print(f"{options.runs} runs: counted after {counted:.2f} s, their table drawn after {drawn:.2f} s")


if __name__ == "__main__":
    main()
