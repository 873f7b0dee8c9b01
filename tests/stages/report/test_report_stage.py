"""The report: the verdict first, what is missing said, hostile strings harmless."""

import base64
import hashlib
import re

import pytest
from small_report import HOSTILE, OUTSIDE, PNG, SAID, Text, full, report, summary, violations

from inductor_debug.stages.report.explorer.section import SCRIPTS
from inductor_debug.stages.report.html import cell, human_bytes, percent, place


def test_the_verdict_comes_first_in_words():
    html, data = report(full())
    text = " ".join(Text(html).words)
    assert text.index("Passed") < text.index("Is it right?") < text.index("Does it fit?") < text.index("What was run")
    assert text.index("call to print") < text.index("2.13.0")
    assert data["sentence"] == (
        "bert with inductor (training, float32, cpu) computes wrong numbers, does not fit the profile warn16 "
        "(3 violations, which do not stop the run) and is 1.25 times as fast as the reference (2.5 ms → 2.5 ms)."
    )
    assert data["verdict"] == "passed" and data["not_established"] == [OUTSIDE]


@pytest.mark.parametrize(
    "words",
    ["call to print", "12", "y = x @ w", "net.py:7", "cpp_fused_mm_0", "2.13.0", "defect", "20.25", "3.0 MiB",
     "1.25", "96 B", "inductor-debug rerun r1", "inductor-debug run model=bert 'model.name=a b'", "288 B"],
)  # fmt: skip
def test_the_findings_are_shown(words):
    html, _ = report(full())
    assert words in " ".join(Text(html).words)


EMULATION = {
    "lower/emulation.csv": "graph,node,target,module,source,kind,count,elements,worst,bytes,flops,message\n"
    "g0.forward,sort,aten.sort.default,m,net.py:9,fallback,,,,4096,,runs on the host\n"
    "g0.forward,norm,aten.native_layer_norm.default,m,net.py:8,pad_leak,12,24,,,,NaN in the padding reaches 12\n",
    "lower/emulation.json": {"profile": "chip", "numerics": {"tile": [32], "poison": True, "casts": {}},
                             "findings": {"pad_leak": 1, "fallback": 1}},
}  # fmt: skip


def test_the_emulations_findings_and_host_fallbacks_are_shown():
    html, data = report(full(**EMULATION))
    text = " ".join(Text(html).words)
    assert "What did the emulation find?" in text
    for words in ("NaN in the padding reaches 12", "net.py:8", "aten.sort.default", "4.0 KiB", "1 operation",
                  "what lies in the padding reaches the result"):  # fmt: skip
        assert words in text, words
    assert "The emulation found 1 node with pad_leak; 1 operation on the host." in data["findings"]
    assert [row["kind"] for row in data["emulation"]["findings"]["rows"]] == ["pad_leak"]
    assert data["emulation"]["fallbacks"]["rows_total"] == 1 and data["emulation"]["numerics"]["tile"] == [32]
    assert not any("stage lower passed but stored nothing" in note for note in data["not_established"])
    assert "What did the emulation find?" not in report(full())[0]


def test_what_was_not_emulated_is_not_established():
    facts = {"profile": "chip", "numerics": {}, "findings": {"not_emulated": 2}, "warns": True}
    _, data = report(full(**EMULATION | {"lower/emulation.json": facts}))
    assert data["not_established"].count("2 operations of which part of the numerics was not emulated.") == 1


@pytest.mark.parametrize("breaks", [{"breaks": 0}, {}])
def test_a_graph_without_breaks_is_told_so(breaks):
    graphs = {"dynamo": 1, "forward": 1, "backward": 1, "guards": 3, "nodes": 9} | breaks
    _, data = report(full(**{"capture/breaks.json": [], "summary.json": summary(graphs=graphs)}))
    [found] = [entry for entry in data["contents"] if entry["key"] == "graphs"]
    assert (found["state"], found["word"]) == ("told", "1 graph")


def test_a_section_answers_with_what_its_stage_said_and_folds_the_figures_behind_it():
    html, data = report(full())
    answers = {entry["key"]: entry for entry in data["contents"]}
    for said, key in zip(SAID.values(), ("graphs", "violations", "lowering", "numerics", "benchmark"), strict=True):
        told, *figures = said.split("\n")
        assert answers[key]["text"].startswith(told) and answers[key]["figures"] == figures
        listed = "\n".join(f"<li>{figure}</li>" for figure in figures)
        assert not figures or f"<summary>The figures behind it</summary><ul>\n{listed}\n</ul></details>" in html
    assert answers["benchmark"]["text"] == (
        "The compiled model is 1.25 times as fast as the reference. The code timed failed the comparison of numbers."
    )
    [stages] = re.findall(r'<section id="stages">.*?</section>', html, re.DOTALL)
    assert all(said.split("\n")[0] in stages for said in SAID.values()) and "10 samples" not in stages


def test_the_page_needs_nothing_from_outside():
    html, _ = report(full())
    tags = Text(html).tags
    sources = [attributes["src"] for tag, attributes in tags if "src" in attributes]
    assert sources == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]
    assert not [tag for tag, attributes in tags if tag in ("link", "iframe")]
    links = {attributes["href"] for tag, attributes in tags if "href" in attributes}
    assert {link[:3] for link in links} <= {"#at", "#se", "#no", "#st", "#fi", "#ma", "../"}
    assert not re.search(r"url\(|@import|https?://", html)


def test_every_link_within_the_page_has_its_place():
    html, _ = report(full(**{"capture/breaks.json": []}))
    tags = Text(html).tags
    places = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(places) == len(set(places))
    assert {attributes["href"][1:] for _, attributes in tags if attributes.get("href", "").startswith("#")} <= {*places}


def test_only_the_pages_own_script_may_run():
    html, _ = report(full())
    (policy,) = [tag["content"] for name, tag in Text(html).tags if tag.get("http-equiv") == "Content-Security-Policy"]
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_defects_come_first_in_the_table():
    _, data = report(full())
    assert [row["path"] for row in data["numerics"]["table"]["rows"]] == ["loss", "output"]


def test_hostile_strings_are_text():
    hostile = summary(run={"id": HOSTILE, "model": HOSTILE, "overrides": [HOSTILE]})
    hostile["stages"][0]["message"] = HOSTILE
    content = full(**{
        "summary.json": hostile, "constrain/violations.csv": violations(node=HOSTILE),
        "capture/breaks.json": [{"reason": HOSTILE}, {"reason": HOSTILE, "detail": HOSTILE}],
        "kerneldiff/plots/<img src=x>.png": PNG})  # fmt: skip
    html, _ = report(content, title=HOSTILE)
    page = Text(html)
    assert [tag for tag, _ in page.tags].count("script") == html.count("<script")
    assert html.count("<script") == len(SCRIPTS) + 2  # the page's own, and the data of the graphs
    assert all(attributes.get("src", "data:").startswith("data:") for _, attributes in page.tags)
    assert HOSTILE in "".join(page.words)


def test_a_table_is_capped_and_names_the_file():
    html, data = report(full(**{"constrain/violations.csv": violations(30)}), max_rows=4)
    assert "4 of 30 rows are shown; all are in constrain/violations.csv" in "".join(Text(html).words)
    assert len(data["violations"]["rows"]) == 4 and data["violations"]["rows_total"] == 30
    assert data["violations"]["top_lines"][0]["findings"] == 30


def test_top_lines_rank_by_cost_and_leave_waived_findings_out():
    text = violations(2, source="a.py:1") + violations(3, source="b.py:2").split("\n", 1)[1]
    _, data = report(full(**{"constrain/violations.csv": text}))
    assert [(line["source"], line["findings"], line["cost_bytes"]) for line in data["violations"]["top_lines"]] == [
        ("b.py:2", 3, 288), ("a.py:1", 2, 192)]  # fmt: skip
    _, data = report(full(**{"constrain/violations.csv": text.replace("warning", "waived")}))
    assert data["violations"]["top_lines"] == []


@pytest.mark.parametrize("kind", ["none", None])
def test_localization_is_a_row_where_something_failed(kind: str | None) -> None:
    stored = {"kind": kind, "localization": "told", "message": "x"}
    html, _ = report(full(**{"kerneldiff/diagnosis.json": stored}))
    assert ("<th>localization</th>" in html) == (kind is None)


def test_a_defect_without_localization_is_said():
    _, data = report(full(**{"kerneldiff/diagnosis.json": {"localization": "not established: it did not run"}}))
    assert data["not_established"] == ["Where the numbers first go wrong: not established: it did not run.", OUTSIDE]


def test_calls_and_generated_kernels_are_told_apart_as_lower_tells_them():
    content = full()
    stored = content["lower/g0.forward/provenance.json"]
    stored["kernels"] = stored["kernels"] * 3 + [stored["kernels"][0] | {"name": "extern_kernels.mm", "kind": "extern"}]
    html, _ = report(content)
    words = "1 generated kernel; 4 kernel calls, 1 of them to library kernels"
    assert words in "".join(Text(html).words)


def test_the_picture_of_what_was_compiled_is_named_where_there_is_one():
    _, data = report(full())
    assert data["lowering"][0]["picture"] is None
    html, data = report(full(**{"lower/g0.forward/post_grad.svg": "<svg/>"}))
    assert data["lowering"][0]["picture"] == "lower/g0.forward/post_grad.svg"
    assert "Its picture, with the kernel of each operation: lower/g0.forward/post_grad.svg" in "".join(Text(html).words)


def test_the_worst_comes_first():
    rows = ("path,verdict,ratio\nnone,exact,\na,exact,1\nb,defect,5\nc,defect,700\nd,defect,\n"
            "e,not_established,\nf,within_floor,3\n")  # fmt: skip
    _, data = report(full(**{"kerneldiff/outputs.csv": rows}))
    assert [row["path"] for row in data["numerics"]["table"]["rows"]] == ["d", "c", "b", "e", "f", "a", "none"]


def test_a_profile_without_rules_checked_nothing():
    unchecked = summary(violations={"total": None, "by_rule": {}, "by_effect": {}, "strict": False})
    unchecked["run"]["accel"] = "none"
    html, data = report(full(**{"summary.json": unchecked, "constrain/violations.csv": violations(0)}))
    assert data["violations"]["total"] is None
    [answer] = [entry for entry in data["contents"] if entry["key"] == "violations"]
    assert (answer["state"], answer["word"]) == ("unknown", "not checked")
    assert "Whether the model fits: nothing was checked, the profile none has no rules." in data["not_established"]
    assert "not checked" in "".join(Text(html).words) and "0 findings" not in html
    checked = summary(violations=unchecked["violations"] | {"total": 0})
    _, data = report(full(**{"summary.json": checked, "constrain/violations.csv": violations(0)}))
    assert "fits the profile warn16" in data["sentence"]


def test_the_backends_own_rules_are_called_its_own():
    declared = {"total": 3, "by_rule": {"alignment": 3}, "by_effect": {}, "strict": False, "profile": "acme"}
    _, data = report(full(**{"summary.json": summary(violations=declared | {"declared_by": "backend"})}))
    misfit = "(3 violations, which do not stop the run)"
    assert f"does not fit the rules that the backend declares (acme) {misfit}" in data["sentence"]
    _, data = report(full(**{"summary.json": summary(violations=declared | {"declared_by": "accel"})}))
    assert f"does not fit the profile warn16 {misfit}" in data["sentence"]


def test_what_ran_outside_the_graphs_is_not_a_fit():
    breaks = [{"kind": "break", "reason": "print"}, {"kind": "skipped_frame", "reason": "exec"}]
    _, data = report(full(**{"capture/breaks.json": breaks}))
    words = "2 graph breaks, 1 of them a skipped frame"
    assert any(line.startswith(f"What runs outside the graphs ({words})") for line in data["not_established"])
    [answer] = [entry for entry in data["contents"] if entry["key"] == "graphs"]
    assert (answer["state"], answer["word"]) == ("warn", words)
    _, data = report(full(**{"capture/breaks.json": []}))
    assert not any("outside" in line for line in [*data["findings"], *data["not_established"]])
    [answer] = [entry for entry in data["contents"] if entry["key"] == "graphs"]
    assert (answer["state"], answer["word"]) == ("warn", "1 graph break")


def test_breaks_of_one_reason_are_one_entry_with_its_places():
    one = {"kind": "break", "reason": "call to print", "detail": "told\nat length", "stack": ["net.py:1 in forward"]}
    place = {"file": "net.py", "code": "print()"}
    breaks = [one | place | {"graph": f"g{number}.dynamo", "line": 10 + number % 2} for number in range(4)]
    html, data = report(full(**{"capture/breaks.json": [*breaks, one | {"reason": "other"}]}))
    assert [(item["count"], item["places"]) for item in data["graphs"]["breaks"]] == [
        (4, ["net.py:10  print()", "net.py:11  print()"]), (1, [])]  # fmt: skip
    text = " ".join(Text(html).words)
    assert text.count("call to print") == 1 and "4 times" in text and text.count("at length") == 2


def test_a_traceback_is_folded():
    told = {"type": "RuntimeError", "message": "gave up", "traceback": "Traceback (most recent call last): deep"}
    html, _ = report(full(**{"kerneldiff/diagnosis.json": {"message": "x", "error": told}}))
    assert re.search(r"gave up<br><details[^>]*><summary>Traceback</summary><pre>Traceback \(most recent", html)
    assert html.count("Traceback (most recent") == 1


def test_every_suggestion_for_a_line_is_shown_or_counted():
    def top(*suggestions):
        rows = violations(len(suggestions)).splitlines()
        lines = [row.removesuffix(",pad") + f",{text}" for row, text in zip(rows[1:], suggestions, strict=True)]
        _, data = report(full(**{"constrain/violations.csv": "\n".join([rows[0], *lines]) + "\n"}))
        (line,) = data["violations"]["top_lines"]
        return line["suggestion"]

    assert top("pad", "pad") == "pad"
    assert top("pad to 16", "pad to 32", "pad to 16") == "pad to 16 (2 findings); pad to 32 (1 finding)"
    assert top("a", "b", "c", "d", "d") == "4 different changes, most common: d (2 findings)"


def test_results_that_are_no_tensors_are_counted_apart():
    rows = "path,verdict,bound\na,exact,bits\nb,exact,bits\nnone,exact,value\n"
    counts = {"compared": 2, "failed": 0, "verdict": "exact", "max_abs": 0.0}
    html, _ = report(full(**{"summary.json": summary(numerics=counts), "kerneldiff/outputs.csv": rows}))
    assert "0 of 3 results failed: 2 compared tensors, 1 value that is no tensor. Over" in "".join(Text(html).words)
    html, _ = report(full(**{"summary.json": summary(numerics=counts), "kerneldiff/outputs.csv": rows[:-19]}))
    assert "0 of 2 compared tensors failed. Over" in "".join(Text(html).words)


def test_installed_packages_are_shown_without_their_folder():
    assert place("/x/lib/python3.11/site-packages/torch/nn.py:3") == "torch/nn.py:3 (torch's own)"
    assert place("/home/me/net.py:7") == "/home/me/net.py:7"


def test_cells():
    assert [cell(value) for value in (None, "", 0.1234567, "0.1234567", "1e-09", "v1.2.3", "12", [1, 2.0])] == [
        "–", "–", "0.12346", "0.12346", "1e-09", "v1.2.3", "12", "1, 2"]  # fmt: skip
    assert [human_bytes(value) for value in (None, 12, 2048, "x")] == ["–", "12 B", "2.0 KiB", "–"]
    assert [percent(value) for value in (None, 0.1234, 1, 12.34, "x")] == ["–", "12.3 %", "100 %", "1234 %", "–"]
