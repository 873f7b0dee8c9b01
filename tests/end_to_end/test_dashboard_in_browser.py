"""The dashboard as a reader has it: its command, a real browser, real runs; at desktop and at phone width."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import TESTS
from in_browser import PHONE, WIDE
from waiting import until

from inductor_debug.pipeline.dashboard.children import Children, State
from inductor_debug.pipeline.directory import store

PAGES = {"": "Runs", "run": "New run", "sweeps": "Sweeps", "trend": "Over time", "check": "Check a profile"}
WAIT_S = 60
SMALL = "model.image_size=32 runner.cache=false"
"""Further words of a run: ResNet-18 on small pictures."""


class Served:
    """A server of the page in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.outputs = folder, folder / "outputs"
        command = [sys.executable, "-m", "inductor_debug", "dashboard", "--no-open", "--port", str(self.port)]
        environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
        self.said = folder / "server.log"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.said.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stcore/health") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def address(self, page: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/{page}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        children = Children(self.outputs)
        for ticket in children.tickets():
            children.stop(ticket)
            until(lambda ticket=ticket: children.state(ticket) == State.ENDED)  # type: ignore[misc]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.end()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page; at the end nothing was asked of another machine, and no script of ours or Streamlit's failed."""
    contexts, wrong = [], []

    def open_page(address: str, size: Any = WIDE) -> Any:
        context = browser.new_context(viewport=size, accept_downloads=True)
        context.set_default_timeout(WAIT_S * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if "//127.0.0.1:" not in request.url
                and request.url.startswith(("http", "ws")) else None)  # fmt: skip
        page.goto(address)
        page.get_by_role("heading", level=1).wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def choose(page: Any, label: str, name: str) -> None:
    """Choose a name in a field."""
    field = page.get_by_role("combobox", name=label, exact=True)
    field.click()
    field.fill(name)
    page.get_by_role("option", name=name, exact=True).click()
    field.press("Tab")


def start(page: Any, accel: str, words: str) -> None:
    """Start a run of ResNet-18's capture against a profile."""
    choose(page, "Accelerator profile", accel)
    field = page.get_by_role("textbox", name="Further words")
    field.fill(f"stages=[capture,constrain,report] {words}")
    field.press("Enter")
    page.get_by_text(words.split()[0]).first.wait_for()
    page.get_by_role("button", name="Start").click()


def test_a_reader_runs_looks_mends_compares_and_takes_away(served: Served, opened: Any, tmp_path: Path) -> None:
    page = opened(served.address("run"))
    start(page, "strict16", SMALL)
    page.get_by_text("ended: failed").wait_for()
    (run,) = store.find_runs(served.outputs)
    assert store.row(run)["verdict"] == "failed" and store.row(run)["accel"] == "strict16"
    page.get_by_role("button", name="Open the run").first.click()  # one that is stale may stand beside it
    page.get_by_role("heading", name="Runs", level=1).wait_for()
    page.get_by_text("does not fit the profile strict16").first.wait_for()
    page.get_by_role("tab", name="Report").click()
    report = page.frame_locator("iframe").frame_locator("iframe")
    report.get_by_text("does not fit the profile strict16").first.wait_for()
    assert "resnet.py:" in report.locator("body").inner_text()
    page.get_by_role("tab", name="Download").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download Export").click()
    assert download.value.suggested_filename == f"{run.name}.zip"
    download.value.save_as(tmp_path / "sent.zip")
    with zipfile.ZipFile(tmp_path / "sent.zip") as archive:
        assert f"{run.name}/summary.json" in archive.namelist()

    page.goto(served.address("check"))
    page.get_by_text("does not fit the profile strict16").first.wait_for()
    field = page.get_by_role("spinbutton", name="alignment")
    field.fill("1")
    field.press("Enter")
    page.get_by_text("It fits.").wait_for()

    page.goto(served.address("run"))
    start(page, "strict16", f"accel.alignment=1 {SMALL}")
    page.get_by_text("ended: passed").wait_for()
    page.get_by_role("link", name="Runs").click()
    first, second = (str(found.relative_to(served.outputs)) for found in store.runs_by_start(served.outputs))
    choose(page, "Run", first)
    page.get_by_role("tab", name="Summary").wait_for()
    choose(page, "Compare with", second)
    page.get_by_text("Not worse").wait_for()


def test_runs_wait_are_stopped_and_outlive_the_page(served: Served, opened: Any) -> None:
    page = opened(served.address("run"))
    stop = page.get_by_role("button", name="Stop the run")
    for place, size in enumerate((2, 3, 4)):
        start(page, "warn16", f"model.batch_size={size} {SMALL}")
        stop.nth(place).wait_for()
    page.get_by_text("waiting for its turn").nth(1).wait_for()
    page.get_by_text("of 3 stages").wait_for()
    stop.first.click()
    page.get_by_text("stopped", exact=True).wait_for()
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()
    children = Children(served.outputs)
    third, second, first = children.tickets()
    until(lambda: children.state(second) == State.ENDED)
    verdicts = [store.row(Path(ticket.directory))["verdict"] for ticket in (first, second)]
    assert verdicts == ["passed", "passed"] and not Path(third.directory).exists()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
def test_each_page_fits_the_width(size: Any, served: Served, opened: Any) -> None:
    for name, title in PAGES.items():
        page = opened(served.address(name), size)
        page.get_by_role("heading", name=title, level=1).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert "Path of each page" not in page.locator("body").inner_text()  # Streamlit shows docstrings, unless told


def test_only_this_machine_is_served(served: Served) -> None:
    import psutil

    listening = {
        item.laddr.ip for item in psutil.Process(served.process.pid).net_connections() if item.status == "LISTEN"
    }
    assert listening == {"127.0.0.1"}
