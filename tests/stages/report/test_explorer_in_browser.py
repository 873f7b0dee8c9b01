"""The graphs of the report in Debian's Chromium: selecting, unfolding, colours, search, keys, and what leads there."""

import json

import pytest
from in_browser import PHONE, WIDE, accessibility_violations, unfold
from small_explorer import explored, graph, node
from small_report import report


@pytest.fixture
def shown(opened, tmp_path):
    """Opens the page of a run's files."""

    def show(content=None, **options):
        folder = tmp_path / "run" / "report"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(report(content or explored())[0], encoding="utf-8")
        return opened((folder / "report.html").as_uri(), **options)

    return show


def deep(layers=6):
    """A forward of layers with two modules each."""
    nodes = []
    for layer in range(layers):
        for module in ("attention", "dense"):
            for step in range(4):
                before = [nodes[-1]["name"]] if nodes else []
                path = f"layer.{layer}.{module}"
                nodes.append(node(f"n{layer}_{module}_{step}", module=path, inputs=before, flops=100))
    return explored(**{"capture/graphs/g0.forward.json": graph("g0.forward", *nodes)})


def found(page, words):
    page.locator(".explorer input[type=search]").fill(words)
    return page.locator(".explorer .results button")


def details(page):
    """What is told of the selection: heading, and term → text."""
    part = page.locator(".explorer .details")
    told = dict(zip(part.locator("dt").all_inner_texts(), part.locator("dd").all_inner_texts(), strict=True))
    return part.locator("h3").inner_text(), told


def place_of(page, pane, title):
    """Where the box with a title is on the screen, as the script has laid it out."""
    return page.evaluate(
        """([pane, title]) => {
          const { view, scale, x, y, canvas } = explorer.panes[pane];
          const find = (item) => (item.title === title ? item
            : (item.open ? item.parts.map(find).find(Boolean) : null));
          const item = find(view.root);
          if (!item) return null;
          const { left, top } = canvas.getBoundingClientRect();
          return { x: left + x + (item.left + item.width / 2) * scale, y: top + y + (item.top + 12) * scale,
                   mark: left + x + (item.left + 10) * scale };
        }""",
        [pane, title],
    )


def colour_at(page, pane, title):
    """The colour of a box, beside its texts, as the canvas shows it."""
    place = place_of(page, pane, title)
    return page.evaluate(
        """([pane, x, y]) => {
          const { canvas } = explorer.panes[pane];
          const { left, top } = canvas.getBoundingClientRect();
          const ratio = canvas.width / canvas.clientWidth;
          const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          one.drawImage(canvas, (left - x) * ratio, (top - y) * ratio);
          return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        [pane, place["x"], place["y"] - 7],
    )


def test_selecting_an_operation_selects_what_it_came_of_and_what_came_of_it(shown):
    page = shown()
    page.locator(".explorer").scroll_into_view_if_needed()
    place = place_of(page, 0, "relu")
    page.mouse.click(place["x"], place["y"])
    title, told = details(page)
    assert title == "relu"
    assert told["Graph"] == "g0 AOT forward" and told["Calls"] == "aten.relu.default" and told["Reads"] == "addmm"
    assert told["In g0 Dynamo"] == "relu"
    assert told["In g0 forward, post-grad"] == "mul, maximum"
    assert told["In g0 forward, kernels"] == "cpp_fused_relu_0:2"
    assert "In g0 AOT backward" not in told
    assert told["Errors"] == "at fault, inf × floor" and told["Line"].startswith("net.py:8")
    assert page.evaluate("explorer.panes[1].selected.size") == 5  # the other pane has the same selection


def test_a_selection_leads_to_source_and_kernel_and_back(shown):
    page = shown()
    found(page, "aten.relu").first.click()
    page.locator(".explorer .details a", has_text="net.py:8").click()
    line = page.locator("tr:target")
    assert "return y" in line.inner_text() and "selected" in line.get_attribute("class")
    page.locator(".explorer .details a", has_text="cpp_fused_relu_0").click()
    kernel = page.locator("details.selected", has_text="made by the compiler").last
    kernel.locator("pre").wait_for(state="visible")
    kernel.get_by_role("button", name="Show in the graphs").click()
    assert details(page)[0] == "cpp_fused_relu_0:2"
    page.get_by_role("button", name="Line 7: show its operations").click()
    assert details(page)[0] == "linear"
    assert page.evaluate("explorer.panes.some(pane => pane.view.graph.id === 'g0.dynamo')")


def test_a_finding_in_a_table_leads_to_the_operation_that_reads_its_parameter(shown):
    page = shown()
    page.get_by_role("button", name="primals_1: show it in the graphs").first.click()
    title, told = details(page)
    assert title == "addmm" and told["Findings"] == "pad, alignment: 8 columns"
    assert page.evaluate("document.activeElement === explorer.panes[0].canvas")


def test_search_finds_operations_modules_and_parameters(shown):
    page = shown()
    assert found(page, "fc.weight").all_inner_texts() == ["addmm"]
    assert found(page, "CPP_FUSED").all_inner_texts() == ["cpp_fused_relu_0:2"]
    assert found(page, "nothing like it").count() == 0
    assert page.locator(".explorer .results [role=status]").inner_text().startswith("Nothing has these words")
    assert found(page, "net.py:8").first.inner_text() == "relu"  # of the graph that is shown, by its line
    found(page, "threshold")
    page.keyboard.press("Enter")
    assert details(page)[0] == "threshold_backward"


@pytest.mark.parametrize(
    "colour, words",
    [
        ("findings", {"addmm": "pad", "relu": None}),
        ("errors", {"addmm": None, "relu": "at fault, inf × floor"}),
        ("times", {"addmm": None, "relu": "≤ 10.0 µs"}),
        ("flops", {"addmm": "100 % of FLOPs", "relu": None}),
    ],
)
def test_colours_tell_what_is_known_of_an_operation_or_of_what_it_is_linked_to(shown, colour, words):
    page = shown()
    page.locator(".explorer select").first.select_option(colour)
    told = page.evaluate("""() => Object.fromEntries(explorer.panes[0].view.leaves.map((leaf) =>
        [leaf.title, explorer.graphs.mark(explorer.panes[0].what, leaf)?.words ?? null]))""")
    assert told == words
    page.evaluate("explorer.panes.forEach((pane) => pane.draw())")
    coloured, plain = (next((t for t, w in words.items() if (w is None) == none), None) for none in (False, True))
    if plain:
        assert colour_at(page, 0, plain) == [255, 255, 255]
    assert colour_at(page, 0, coloured) != [255, 255, 255]


def test_time_of_a_forward_leaves_out_what_its_backward_recomputes(shown):
    content = explored()
    again = json.loads(json.dumps(content["lower/g0.forward/nodes.json"]))
    launch = json.loads(json.dumps(content["lower/g0.forward/provenance.json"]))
    launch["kernels"] = [launch["kernels"][1]]
    content |= {"lower/g0.backward/nodes.json": again, "lower/g0.backward/provenance.json": launch}
    content["profile/kernels.csv"] += "g0.backward,cpp_fused_relu_0,2,cpp,1,500.0,0.5\n"
    page = shown(content)
    words = """id => { const number = explorer.graphs.graphs.findIndex((graph) => graph.id === id);
      return explorer.graphs.measure("times", explorer.graphs.find(id, "relu")).words; }"""
    assert page.evaluate(words, "g0.forward") == "≤ 10.0 µs"
    assert page.evaluate(words, "g0.dynamo") == "≤ 50.0 %, 510 µs"


def test_modules_open_in_their_place_and_close(shown):
    page = shown(deep())
    page.locator(".explorer .panes").scroll_into_view_if_needed()
    page.locator(".pane button", has_text="Fold").nth(1).click()
    assert place_of(page, 0, "3") and not place_of(page, 0, "attention")
    place = place_of(page, 0, "3")
    page.mouse.click(place["mark"], place["y"])
    assert place_of(page, 0, "attention")
    after = place_of(page, 0, "3")
    assert abs(after["mark"] - place["mark"]) < 2 and abs(after["y"] - place["y"]) < 2  # it stays where it was
    page.mouse.click(after["mark"], after["y"])
    assert not place_of(page, 0, "attention")
    page.locator(".pane button", has_text="Unfold").first.click()
    assert page.evaluate("explorer.panes[0].view.leaves.every((leaf) => leaf.within.slice(0, -1).every((g) => g.open))")


def test_fit_shows_all_of_a_long_graph(shown):
    page = shown(deep())
    page.locator(".pane button", has_text="Unfold").first.click()
    whole = """() => { const { view, scale, y, canvas } = explorer.panes[0];
      return y >= 0 && y + view.root.height * scale <= canvas.clientHeight; }"""
    assert not page.evaluate(whole)
    page.locator(".pane button", has_text="Fit").first.click()
    assert page.evaluate(whole)


def test_a_wide_graph_begins_where_it_can_be_read(shown):
    nodes = [node(f"n{index}", flops=1) for index in range(30)]
    page = shown(explored(**{"capture/graphs/g0.forward.json": graph("g0.forward", *nodes)}))
    seen = page.evaluate("""() => { const { view, scale, x, y, canvas } = explorer.panes[0];
      return [scale >= LEGIBLE, view.root.width * scale > canvas.clientWidth, view.root.parts.some((part) =>
        x + part.left * scale >= 0 && x + (part.left + part.width) * scale <= canvas.clientWidth && y >= 0)]; }""")
    assert seen == [True, True, True]


def test_nothing_overlaps_and_lines_lead_from_above_to_below(shown):
    page = shown(deep())
    page.locator(".pane button", has_text="Unfold").first.click()
    problems = page.evaluate("""() => {
      const problems = [];
      const visit = (group) => {
        group.parts.forEach((one, index) => {
          if (one.left < group.left || one.top < group.top || one.left + one.width > group.left + group.width + 1
              || one.top + one.height > group.top + group.height + 1) problems.push(["outside", one.title]);
          group.parts.slice(index + 1).forEach((other) => {
            if (one.left < other.left + other.width && other.left < one.left + one.width
                && one.top < other.top + other.height && other.top < one.top + one.height) {
              problems.push(["overlap", one.title, other.title]);
            }
          });
          if (one.open) visit(one);
        });
        group.lines.forEach(({ from, to }) => from.top + from.height > to.top && problems.push([from.title, to.title]));
      };
      visit(explorer.panes[0].view.root);
      return problems;
    }""")
    assert problems == []


def test_keys_walk_through_a_graph_and_say_where_they_are(shown):
    page = shown(deep())
    canvas = page.locator(".explorer canvas").first
    canvas.focus()
    page.locator(".pane button", has_text="Fold").nth(1).click()
    canvas.focus()
    status = page.locator(".explorer > [role=status]")
    page.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("0, closed group of 8")
    page.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("1, closed group of 8")
    page.keyboard.press("Enter")
    assert status.inner_text().startswith("1, open group of 8")
    page.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("attention, closed group of 4")
    page.keyboard.press("ArrowRight")
    assert status.inner_text().startswith("dense, ")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("n1_dense_0, 4×8 float32")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    assert status.inner_text().startswith("1, open group of 8")
    scale = page.evaluate("explorer.panes[0].scale")
    page.keyboard.press("+")
    assert page.evaluate("explorer.panes[0].scale") == pytest.approx(1.25 * scale)


def test_the_wheel_zooms_a_graph_with_the_focus_and_else_scrolls_the_page(shown):
    page = shown(deep())
    canvas = page.locator(".explorer canvas").first
    canvas.scroll_into_view_if_needed()
    canvas.hover()
    before = page.evaluate("[explorer.panes[0].scale, scrollY]")
    page.mouse.wheel(0, 100)
    page.wait_for_function("before => scrollY > before", arg=before[1])
    assert page.evaluate("explorer.panes[0].scale") == before[0]
    canvas.focus()
    canvas.hover()
    page.mouse.wheel(0, 100)
    page.wait_for_function("before => explorer.panes[0].scale < before", arg=before[0])


def test_a_drag_moves_a_graph_and_selects_nothing(shown):
    page = shown(deep())
    page.locator(".explorer .panes").scroll_into_view_if_needed()
    box = page.locator(".explorer canvas").first.bounding_box()
    x, y = page.evaluate("[explorer.panes[0].x, explorer.panes[0].y]")
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 20, steps=3)
    page.mouse.up()
    assert page.evaluate("[explorer.panes[0].x, explorer.panes[0].y]") == [x + 40, y - 30]
    assert "Nothing is selected" in page.locator(".explorer .details").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
def test_the_graphs_have_no_accessibility_violation(shown, size, scheme):
    page = shown(size=size, color_scheme=scheme)
    found(page, "relu").first.click()
    unfold(page)
    assert accessibility_violations(page) == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_without_scripts_the_pictures_are_there_and_the_graphs_say_why_not(shown):
    page = shown(java_script_enabled=False)
    assert "need the page's script" in page.locator("#section-explorer").inner_text()
    assert page.locator("#section-graphs svg").count() == 3


def test_hostile_names_in_graphs_run_nothing(shown):
    hostile = "</script><img src=x onerror=alert(1)>\x1b[31m\u2028'\"&"
    content = deep(2)
    nodes = content["capture/graphs/g0.forward.json"]["nodes"]
    for index, item in enumerate(nodes):
        item |= {"name": f"{hostile}{index}", "target": hostile, "module": hostile,
                 "inputs": [f"{hostile}{index - 1}"] if index else []}  # fmt: skip
    page = shown(content)
    found(page, "onerror").first.click()
    assert details(page)[0].startswith("</script>")
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("explorer.panes[0].view.leaves.length") == len(nodes)


def test_a_run_without_graphs_brings_no_script_for_them(shown):
    content = {name: stored for name, stored in explored().items() if not name.startswith(("capture/graphs", "lower"))}
    page = shown(content)
    assert page.locator("#section-explorer").count() == 0 and page.locator("script").count() == 1
