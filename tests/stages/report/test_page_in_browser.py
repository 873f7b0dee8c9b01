"""The report in Debian's Chromium: it opens, sorts, filters, folds, leads from line to kernel, and is accessible."""

import os
from pathlib import Path

import pytest
from in_browser import PHONE, WIDE, accessibility_violations, unfold
from small_report import HOSTILE, PNG, full, report, summary, violations

ROWS = (
    "finding,graph,node,target,operand,module,source,rule,effect,severity,measured,limit,cost_bytes,cost_share,"
    "message,suggestion\n"
)


def many_findings():
    """Twelve findings with costs that sort otherwise as text, at two lines."""
    return ROWS + "".join(
        f"f{index},g0.forward,mm_{index},aten.mm.default,output,m,net.py:{7 if index else 8},alignment,pad,warning,"
        f"100,16,{cost},0.12,message {index},pad\n"
        for index, cost in enumerate([96, 1024, 8, 200, 32, 64, 128, 256, 512, 4, 16, 48])
    )


def wrong_node():
    columns = "graph,call,node,target,operations,original,module,source,kernel,elements,dtype,state,ratio,bound\n"
    return (
        f"{columns}g0.forward,0,mm,aten.mm.default,mm,,m,net.py:7,cpp_fused_mm_0:1,4,float32,wrong,812.5,max\n"
        "g0.forward,0,relu,aten.relu.default,relu,,m,net.py:8,cpp_fused_mm_0:1,4,float32,right,0.5,max\n"
    )


def stored(tmp_path: Path, **more) -> str:
    """Address of the page of a run."""
    content = full(**{"constrain/violations.csv": many_findings(), "kerneldiff/nodes.csv": wrong_node()} | more)
    html, _ = report(content)
    folder = tmp_path / "run" / "report"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(html, encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.fixture
def shown(opened, tmp_path):
    """Opens the page of a run."""
    return lambda url=None, **options: opened(url or stored(tmp_path), **options)


def findings(page):
    return page.locator("#section-violations table.data").last


def column(table, name: str) -> list[str]:
    heads = [text.strip() for text in table.locator("thead th").all_inner_texts()]
    return [row.locator("td").nth(heads.index(name)).inner_text() for row in table.locator("tbody tr:visible").all()]


def test_the_first_screen_has_the_verdict_what_to_type_and_the_contents(shown):
    page = shown()
    for selector in (".verdict", ".then pre", "nav li:last-child"):
        box = page.locator(selector).first.bounding_box()
        assert box["y"] + box["height"] <= WIDE["height"], selector
    told = page.locator(".verdict").inner_text()
    misfit = "does not fit the profile warn16 (12 violations, which do not stop the run, the costliest at net.py:7)"
    assert f"computes wrong numbers, {misfit}" in told
    assert "is 1.25 times as fast as the reference (2.5 ms → 2.5 ms)" in told
    link = page.locator("nav a", has_text="Is it right?")
    link.click()
    page.wait_for_function("document.querySelector('#section-numerics h2').getBoundingClientRect().y < 100")


def test_a_table_is_sorted_by_value_with_mouse_and_keyboard(shown):
    page = shown()
    table = findings(page)
    head = table.locator("th button", has_text="cost bytes")
    head.click()
    sizes = column(table, "cost bytes")
    assert sizes[:2] == ["1.0 KiB", "512 B"] and sizes[-3:] == ["16 B", "8 B", "4 B"]
    assert table.locator("th[aria-sort=descending]").count() == 1
    head.focus()
    page.keyboard.press("Enter")
    assert column(table, "cost bytes")[:3] == ["4 B", "8 B", "16 B"]
    table.locator("th button", has_text="node").click()
    assert column(table, "node")[:3] == ["mm_0", "mm_1", "mm_2"]


def test_a_table_is_filtered_by_words(shown):
    page = shown()
    bar = page.locator("#section-violations .filter").last
    bar.get_by_role("searchbox").fill("net.py:7 MM_1")
    assert column(findings(page), "node") == ["mm_1", "mm_10", "mm_11"]
    assert bar.locator("output").inner_text() == "3 of 12 rows"
    bar.get_by_role("searchbox").fill("")
    assert len(column(findings(page), "node")) == 12


def test_a_finding_leads_to_its_line_and_the_line_to_its_kernel(shown):
    page = shown()
    findings(page).get_by_role("link", name="net.py:7").first.click()
    line = page.locator("tr:target")
    assert (
        "y = x @ w" in line.inner_text()
        and "11 × alignment" in line.inner_text()
        and "812 × floor" in line.inner_text()
    )
    kernel = page.locator("details", has_text="made by the compiler").last
    assert not kernel.locator("pre").is_visible()
    line.get_by_role("link", name="cpp_fused_mm_0").click()
    kernel.locator("pre").wait_for(state="visible")
    assert kernel.locator("pre .comment").inner_text() == "// made by the compiler\n"[:-1]


def test_a_wrong_operation_leads_to_its_kernel(shown):
    page = shown()
    page.locator("#section-numerics").get_by_role("link", name="cpp_fused_mm_0:1").first.click()
    page.locator("details:target pre").wait_for(state="visible")


def test_files_of_the_run_are_linked_from_where_the_page_lies(shown, tmp_path):
    page = shown()
    links = page.locator("#files a").evaluate_all("links => links.map(link => link.href)")
    assert f"{(tmp_path / 'run').as_uri()}/capture/breaks.json" in links
    assert len(links) == len(full()) + 1  # and nodes.csv


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
def test_the_page_has_no_accessibility_violation(shown, size, scheme):
    page = shown(size=size, color_scheme=scheme)
    unfold(page)
    assert accessibility_violations(page) == ""


def test_a_phone_does_not_scroll_sideways(shown):
    page = shown(size=PHONE)
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_dark_is_dark(shown, tmp_path):
    url = stored(tmp_path)
    grounds = [
        shown(url, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert grounds == ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]


def test_print_unfolds_and_cuts_nothing_off(shown):
    page = shown(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open], .bulky)").count() == 0
    assert (
        page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 35, 48)"
    )  # dark on white, whatever the screen
    cut = page.locator(".scroll, pre").evaluate_all(
        "parts => parts.filter(part => part.scrollHeight > part.clientHeight + 2"
        " && getComputedStyle(part).overflowY !== 'visible').length"
    )
    assert cut == 0
    page.set_viewport_size({"width": 700, "height": 1000})  # of a sheet of A4
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0


def test_without_scripts_all_is_there(shown):
    page = shown(java_script_enabled=False)
    assert page.locator("th button").count() == 0
    assert "message 11" in findings(page).inner_text()
    page.locator("#files summary").first.click()
    assert page.locator("#files a").first.is_visible()


def test_hostile_names_run_nothing(shown, tmp_path):
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m\"'&{{ 7 * 7 }}"
    told = summary(run={**summary()["run"], "id": hostile, "model": hostile, "overrides": [hostile]})
    told["stages"][0]["message"] = hostile
    node = wrong_node().replace("aten.mm.default", hostile.replace('"', ""))
    url = stored(tmp_path, **{
        "summary.json": told, "constrain/violations.csv": violations(node=HOSTILE, source="net.py:7"),
        "kerneldiff/nodes.csv": node, "kerneldiff/plots/<img src=x>.png": PNG,
        "capture/sources.json": [{"file": "net.py", "first": 7, "text": hostile}]})  # fmt: skip
    page = shown(url)
    harmless = shown(stored(tmp_path / "harmless"))
    assert page.locator("script").count() == harmless.locator("script").count()
    assert page.locator("img[src=x]").count() == 0
    assert "{{ 7 * 7 }}" in page.locator("h1").inner_text() + page.locator("#stages").inner_text()


def test_a_command_is_copied(browser, tmp_path):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(stored(tmp_path))
    page.locator(".then pre button").first.click()
    page.locator(".then pre button", has_text="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    context.close()
    assert copied.startswith("inductor-debug ") and os.linesep not in copied
