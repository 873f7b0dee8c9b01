"""The alignment rule on ResNet-18 and BERT against lists derived by hand: none more, none less, each at its line."""

from collections import Counter
from pathlib import Path

import alignment_by_hand as hand
import pytest

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.violation import Violation

RESNET = {"_target_": "models.torchvision_models.build", "name": "resnet18"}
BERT = {
    "_target_": "models.bert.build",
    "vocabulary": 119547, "layers": 12, "width": 768, "heads": 12, "intermediate": 3072,
}  # fmt: skip
ALIGNMENTS = (8, 16, 32)
CHIPS = {
    # float operations and int64 ids: neither is int8, uint8 or int16; the vocabulary of 119,547 exceeds 65,535
    "arm_ethos_u55": {("dtype", "fallback"), ("size", "fallback")},
    # int64 ids and the boolean mask are cast, what computes integers runs on the host, the embedding table spans more
    # than 255.996 MiB; 100 floats are no multiple of 128 bytes
    "ibm_spyre": {("dtype", "cast"), ("dtype", "fallback"), ("memory_tensor", "reject")},
    # one row of sublanes is padded to 8, operands of matrix products are rounded to bfloat16
    "google_tpu": {("tile", "pad"), ("dtype", "cast")},
    # vectors and single rows are padded to 32x32 tiles; int64 and bool are not listed
    "tenstorrent_wormhole_b0": {("tile", "pad"), ("dtype", "reject")},
}


def graphs(build: dict[str, object], **sizes: int) -> list[GraphRecord]:
    return capture(build_case(ModelConfig("model", dict(build), **sizes)), None).graphs


@pytest.fixture(scope="module")
def resnet18() -> list[GraphRecord]:
    return graphs(RESNET)


def flagged(row: Violation) -> hand.Flagged:
    """A row in the terms of the lists."""
    what = row.target if row.operand in ("parameter", "buffer") else row.target.removeprefix("aten.").split(".")[0]
    file, _, line = row.source.rpartition(":")
    code = Path(file).read_text().splitlines()[int(line) - 1].strip()
    return hand.Flagged(row.module, what, int(row.measured), code)


def compare(records: list[GraphRecord], alignment: int, expected: list[hand.Flagged]) -> None:
    rows = check(records, load_profile("strict16", alignment=alignment))
    found, wanted = Counter(map(flagged, rows)), Counter(expected)
    assert found - wanted == Counter(), "flagged, and not in the list"
    assert wanted - found == Counter(), "in the list, and not flagged"
    assert all(str(row.limit) == str(alignment) for row in rows)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_resnet18(resnet18: list[GraphRecord], alignment: int) -> None:
    compare(resnet18, alignment, hand.resnet18(alignment))


@pytest.mark.slow
@pytest.mark.parametrize("length", [100, 128])
def test_bert(length: int) -> None:
    records = graphs(BERT, sequence_length=length)
    for alignment in ALIGNMENTS:
        compare(records, alignment, hand.bert(length, alignment))
    chips = CHIPS | ({"ibm_spyre": CHIPS["ibm_spyre"] | {("alignment", "pad")}} if length == 100 else {})
    pictures = {name: {(row.rule, row.effect) for row in check(records, load_profile(name))} for name in CHIPS}
    assert pictures == chips


def test_all_dimensions_show_the_batch(resnet18: list[GraphRecord]) -> None:
    rows = check(resnet18, load_profile("strict16", alignment=8, alignment_dims="all"))
    activations = [
        node.name
        for graph in resnet18
        if graph.kind == "forward"
        for node in graph.nodes
        if node.op == "call_function" and node.target.split(".")[1] in ("convolution", "relu", "add", "addmm")
    ]
    batch = {row.node for row in rows if "dimension 0 of" in row.message and row.measured == "1"}
    assert len(activations) == 20 + 17 + 8 + 1
    assert set(activations) <= batch
    by_default = check(resnet18, load_profile("strict16", alignment=8))
    assert not any("dimension 0 of" in row.message for row in by_default if row.measured == "1")
