"""The report's pictures: which graphs, with which findings, and what is said where there is none."""

import re

import pandas
import pytest
from constrain_graphs import LINEAR, call, graph, placeholder, tensor

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.capture import pictures as module
from inductor_debug.stages.capture.pictures import pictures
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.explorer.section import SCRIPTS
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.rules.violations import COLUMNS
from inductor_debug.stages.settings import Settings


def stored(*kinds, number=0, **more):
    graphs = {f"capture/graphs/g{number}.{kind}.json": LINEAR.to_json() | {"id": f"g{number}.{kind}", "kind": kind}
              for kind in kinds}  # fmt: skip
    return graphs | more


def page(content):
    context = StageContext(Settings(ModelConfig(name="tiny")), MemoryArtifacts(content))
    return ReportStage(ReportConfig()).run(context).artifacts["report/report.html"]


def test_the_forward_comes_first_and_the_joint_graph_is_left_to_its_file():
    content = (
        stored("dynamo", "joint", "forward", "backward") | stored("forward", number=10) | stored("dynamo", number=2)
    )
    found = pictures(MemoryArtifacts(content))
    assert [picture.graph for picture in found] == [
        "g0.forward", "g0.backward", "g0.dynamo", "g2.dynamo", "g10.forward",
    ]  # fmt: skip
    assert found[0].file == "capture/graphs/g0.forward.svg"


def test_the_page_holds_the_pictures_and_reaches_for_nothing():
    html = page(stored("forward", "backward"))
    assert html.count('<svg class="graph-picture"') == 2
    assert not re.search(r"https?://|<link|@import|url\(", html)
    assert all(link.startswith(("#", "../")) for link in re.findall(r'href="([^"]*)"', html))


def test_findings_of_a_graph_are_outlined_in_its_picture_waived_ones_not():
    found = [
        ("g0.forward", "mm", "warning", "pad", "24 is no multiple of 16"),
        ("g0.forward", "mm", "error", "reject", "no products"),
        ("g0.forward", "add", "waived", "cast", "accepted"),
        ("g0.backward", "gather", "warning", "copy", "not contiguous"),
    ]
    rows = [
        dict.fromkeys(COLUMNS, "")
        | {"graph": graph, "node": node, "severity": severity, "effect": effect, "message": message}
        for graph, node, severity, effect, message in found
    ]
    html = page(stored("forward", "backward", **{"constrain/violations.csv": pandas.DataFrame(rows, columns=COLUMNS)}))
    forward, backward = re.findall(
        r"<summary>([^<]*)</summary>\n<div class=\"scroll\"[^>]*>(<svg.*?</svg>)", html, re.DOTALL
    )
    assert forward[0] == "g0.forward, 1 node with findings against the profile"
    assert "reject: 24 is no multiple of 16; no products" in forward[1] and "accepted" not in forward[1]
    assert "copy: not contiguous" in backward[1] and "no products" not in backward[1]


@pytest.mark.parametrize("limit", ["LARGEST", "TOTAL"])
def test_what_is_too_large_is_left_to_its_file(monkeypatch, limit):
    size = len(pictures(MemoryArtifacts(stored("forward")))[0].svg.encode())
    monkeypatch.setattr(module, limit, size + 10 if limit == "TOTAL" else size - 10)
    html = page(stored("forward", "backward"))
    shown = 1 if limit == "TOTAL" else 0
    assert html.count("<svg") == shown
    assert len(re.findall(r"no picture here.*?capture/graphs/g0\.\w+\.svg", html)) == 2 - shown


def test_a_graph_that_cannot_be_read_is_said():
    html = page({"capture/graphs/g0.forward.json": {"nodes": [{"name": "<b>"}]}, "capture/statistics.csv": "graph\n"})
    assert "the graph can&#39;t be read" in html and "<svg" not in html


def test_names_cannot_leave_the_picture():
    name = "</svg><script>alert(1)</script>"
    record = graph(placeholder("x", 4), call(name, name, ["x"], tensor(4), module=name))
    html = page({"capture/graphs/g0.forward.json": record.to_json(), "capture/statistics.csv": "graph\n"})
    assert (
        html.count("<script") == len(SCRIPTS) + 2 and html.count("</svg>") == 1
    )  # the page's own, and the graphs' data
