"""How fast a stored run's report opens and moves in Debian's Chromium: ``python tests/performance/page.py RUN``.

Prints milliseconds until the page is loaded, seconds that unfolding all modules of its largest graph takes, and, of 90
frames each, the median, the 95th percentile and the longest: of that graph, wholly unfolded, while it is zoomed and
moved, and of the page while it scrolls.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from in_browser import CHROMIUM, FLAGS, WIDE
from playwright.sync_api import sync_playwright

FRAMES = """(act) => new Promise((done) => {
  const pane = explorer.panes[0];
  const times = [];
  let before = performance.now();
  const step = () => {
    const now = performance.now();
    times.push(now - before);
    before = now;
    const count = times.length;
    if (count > 91) {
      times.shift();
      times.sort((one, other) => one - other);
      done([times[45], times[86], times[90]]);
      return;
    }
    if (act === "zoom") pane.zoom(count < 45 ? 0.94 : 1.06);
    if (act === "move") { pane.y -= 12; pane.redraw(); }
    if (act === "scroll") scrollBy(0, count < 45 ? 60 : -60);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
LARGEST = """explorer.graphs.graphs.map((graph, number) => [graph.names.length, number, graph.title])
  .sort((one, other) => other[0] - one[0])[0]"""


def measure(run: Path) -> None:
    """Print the figures of one run's page."""
    page_file = run / "report" / "report.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport=WIDE)
        page.goto(page_file.resolve().as_uri())
        loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        count, number, title = page.evaluate(LARGEST)
        print(f"{page_file.stat().st_size / 1e6:.2f} MB, loaded after {loaded:.0f} ms")
        page.locator(".explorer .panes").scroll_into_view_if_needed()
        page.locator(".pane select").first.select_option(str(number))
        began = time.perf_counter()
        page.evaluate("explorer.panes[0].setAll(true)")
        print(f"{title}, {count} operations, unfolded in {time.perf_counter() - began:.2f} s")
        for act in ("zoom", "move", "scroll"):
            frames = ", ".join(f"{time_of:.1f}" for time_of in page.evaluate(FRAMES, act))
            print(f"{act}: frames of {frames} ms (median, 95th percentile, longest)")
        browser.close()


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
