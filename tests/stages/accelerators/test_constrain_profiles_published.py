"""The profiles that come with the project: sources, names that torch has, the table in the documentation."""

from pathlib import Path

import pytest
from constrain_graphs import call, found, graph, placeholder, tensor

from inductor_debug.stages.accelerators.catalogue import markdown, rows
from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.accelerators.profile import FOLDER, Profile, profile_names
from inductor_debug.stages.rules.engine import check

VENDORS = (
    "arm_ethos_u55", "aws_trainium_nc_v2", "google_tpu", "huawei_ascend_cube", "ibm_spyre", "intel_gaudi",
    "nvidia_tensor_core", "qualcomm_htp", "tenstorrent_wormhole_b0",
)  # fmt: skip


def test_the_documentation_has_every_profile_as_it_is() -> None:
    stored = (FOLDER.parents[1] / "docs/reference/profiles.md").read_text()
    assert stored == markdown(), "inductor-debug profiles --format markdown > docs/reference/profiles.md"
    assert {row["profile"] for row in rows()} == set(profile_names())


@pytest.mark.parametrize("name", VENDORS)
def test_every_number_has_a_source_and_names_that_torch_has(name: str) -> None:
    from inductor_debug.stages.accelerators.torch_check import check_names

    profile = load_profile(name)
    assert profile.rules and not profile.strict
    assert all(rule.source and rule.version for rule in profile.rules)
    check_names(profile)


@pytest.mark.parametrize("name", VENDORS)
def test_scalars_override_a_profile(name: str) -> None:
    assert load_profile(name, strict=True).strict
    profile = load_profile(name, max_rank=3)
    assert [rule.value for rule in profile.of("rank")] == [3]


def conv(*, stride: int = 1, kernel: tuple[int, int] = (3, 3), dilation: int = 1, channels: int = 8) -> object:
    numbers = [[stride, stride], [0, 0], [dilation, dilation]]
    node = call("c", "aten.convolution.default", ["x", "w"], tensor(1, 4, 8, 8))
    node.args.extend([None, *numbers, False, [0, 0], 1])
    weight = placeholder("w", 4, channels, *kernel, role="parameter")
    return graph(placeholder("x", 1, channels, 32, 32), weight, node)


CONVOLUTION = {
    "_target_": "inductor_debug.stages.rules.kernel_limits.convolution",
    "max_stride": 3, "max_height": 64, "max_area": 4096, "max_weight_sum": 8323072,
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ({}, []),
        ({"stride": 3}, []),
        ({"stride": 4}, ["stride is 4, more than 3"]),
        ({"kernel": (64, 3)}, []),
        ({"kernel": (65, 3)}, ["dilated kernel height is 65, more than 64"]),
        ({"kernel": (33, 3), "dilation": 2}, ["dilated kernel height is 65, more than 64"]),
        ({"kernel": (64, 64)}, []),
        ({"kernel": (64, 65)}, ["dilated kernel area is 4,160, more than 4,096"]),
        ({"kernel": (8, 8), "channels": 1024}, []),
        ({"kernel": (8, 8), "channels": 1025}, ["sum of absolute weights, if all were 127, is 8,331,200"]),
    ],
)
def test_windows_of_convolutions(shape: dict[str, object], told: list[str]) -> None:
    rows = found(conv(**shape), rules=[Rule(rule="custom", value=CONVOLUTION)])  # type: ignore[arg-type]
    assert [row.message.removeprefix("c: ")[: len(text)] for row, text in zip(rows, told, strict=True)] == told
    assert [row.severity for row in rows if "sum of" in row.message] in ([], ["undecided"])


def limited(node: object, rule: dict[str, object], *more: object) -> list[str]:
    rows = found(graph(placeholder("x", 1, 8, 32, 32), *more, node), rules=[Rule(rule="custom", value=rule)])
    return [row.severity for row in rows]


def test_a_window_that_can_not_be_read_is_undecided() -> None:
    weight = placeholder("w", 4, 8, 3, 3, role="parameter")
    for numbers in ([["s0", "s0"], [0, 0], [1, 1]], [{"node": "x"}, [0, 0], [1, 1]], [[1, 1], [0, 0], ["s0", "s0"]]):
        node = call("c", "aten.convolution.default", ["x", "w"], tensor(1, 4, 8, 8))
        node.args.extend([None, *numbers, False, [0, 0], 1])
        assert limited(node, CONVOLUTION, weight) == ["undecided"]
    symbolic = placeholder("w", 4, 8, "u0", 3, role="parameter")
    assert limited(call("c", "torch.conv2d", ["x", "w"], tensor(1)), CONVOLUTION, symbolic) == ["undecided"]
    assert limited(call("c", "torch.conv2d", ["x"], tensor(1)), CONVOLUTION) == ["undecided"]
    for size in ("s0", {"node": "x"}):
        node = call("p", "aten.avg_pool2d.default", ["x"], tensor(1))
        node.args.append(size)
        assert limited(node, POOLING) == ["undecided"]


def test_the_dilation_of_a_transposed_convolution_is_its_last_argument() -> None:
    weight = placeholder("w", 8, 4, 33, 3, role="parameter")
    node = call("c", "torch.nn.functional.conv_transpose2d", ["x", "w"], tensor(1))
    node.args.extend([None, [1, 1], [0, 0], [0, 0], 1, [2, 2]])
    assert limited(node, CONVOLUTION, weight) == ["warning"]  # 2 * 32 + 1 is a height of 65
    node.args[-1] = [1, 1]
    assert limited(node, CONVOLUTION, weight) == []


@pytest.mark.parametrize(
    ("batch", "hints", "expected"),
    [
        (8, None, []),
        (16, None, []),
        (1, None, [("warning", "1", 7 * 8 * 32 * 32 * 4)]),
        (12, None, [("warning", "12", 4 * 8 * 32 * 32 * 4)]),
        ("8*s0", [8, 8, 32, 32], []),
        ("s0", [8, 8, 32, 32], [("undecided", "s0", None)]),
        ("s0", [6, 8, 32, 32], [("warning", "s0", 2 * 8 * 32 * 32 * 4)]),
        ("u0", None, [("undecided", "u0", None)]),
    ],
)
def test_a_batch_on_a_tpu(batch: int | str, hints: list[int] | None, expected: list[tuple[object, ...]]) -> None:
    nodes = [
        placeholder("x", batch, 8, 32, 32, hints=hints),
        placeholder("w", 4, 8, 3, 3, role="parameter"),
        call("c", "aten.convolution.default", ["x", "w"], tensor(batch, 4, 30, 30, hints=hints)),
    ]
    nodes[-1].args.extend([None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1])
    rule = load_profile("google_tpu").of("custom")[0]
    rows = found(graph(*nodes), rules=[rule])
    assert [(row.severity, row.measured, row.cost_bytes) for row in rows] == expected
    assert {row.effect for row in rows} <= {"pad"}


def test_a_batch_that_two_convolutions_read_is_padded_once() -> None:
    nodes = [placeholder("x", 1, 8, 32), placeholder("w", 4, 8, 3, role="parameter")]
    nodes += [call(name, "aten.convolution.default", ["x", "w"], tensor(1, 4, 30)) for name in ("a", "b")]
    rows = found(graph(*nodes), rules=load_profile("google_tpu").of("custom"))
    assert [row.cost_bytes for row in rows] == [7 * 8 * 32 * 4, 0]


def test_a_convolution_without_a_batch_has_none_to_pad() -> None:
    nodes = [placeholder("x", 8, 32), placeholder("w", 4, 8, 3, role="parameter"),
             call("c", "torch.conv1d", ["x", "w"], tensor(4, 30))]  # fmt: skip
    assert found(graph(*nodes), rules=load_profile("google_tpu").of("custom")) == []
    alone = graph(placeholder("x", 3, 8, 32), call("c", "torch.conv1d", ["x"], tensor(3, 4, 30)))
    assert [row.severity for row in found(alone, rules=load_profile("google_tpu").of("custom"))] == ["undecided"]


POOLING = {
    "_target_": "inductor_debug.stages.rules.kernel_limits.average_pooling",
    "max_kernel": 8,
    "max_stride": 3,
}


@pytest.mark.parametrize(("kernel", "stride", "count"), [(8, 3, 0), (9, 3, 1), (8, 4, 1), (9, 4, 2)])
def test_windows_of_average_pooling(kernel: int, stride: int, count: int) -> None:
    node = call("p", "aten.avg_pool2d.default", ["x"], tensor(1, 8, 8, 8))
    node.args.extend([[kernel, kernel], [stride, stride]])
    assert len(limited(node, POOLING)) == count


def test_a_profile_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text("name: chip\nrules: [{rule: tile, value: [4, 4], source: me, version: '1'}]\n")
    assert [rule.value for rule in load_profile(file).rules] == [[4, 4]]


PRODUCT = graph(
    placeholder("x", 3, 64, dtype="float16"), placeholder("w", 64, 20, dtype="float16", role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(3, 20, dtype="float16")),
)  # fmt: skip
ATTENTION = graph(
    placeholder("q", 2, 4, 128, 128),
    call("a", "aten._scaled_dot_product_flash_attention_for_cpu.default", ["q", "q", "q"], tensor(2, 4, 128, 128)),
)
INTEGERS = graph(
    placeholder("x", 16, 48, dtype="int8"), placeholder("w", 48, 20, dtype="int8", role="parameter"),
    call("mm", "aten._int_mm.default", ["x", "w"], tensor(16, 20, dtype="int32")),
)  # fmt: skip


def linear(rows: int, contracted: int, columns: int, dtype: str) -> object:
    """A layer with a bias."""
    return graph(
        placeholder("b", columns, dtype=dtype, role="parameter"), placeholder("x", rows, contracted, dtype=dtype),
        placeholder("w", contracted, columns, dtype=dtype, role="parameter"),
        call("addmm", "aten.addmm.default", ["b", "x", "w"], tensor(rows, columns, dtype=dtype)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "dtype", "expected"),
    [
        ((32, 64, 32), "float32", []),
        ((32, 24, 32), "float32", []),  # K0 is 32 bytes: 8 elements of float32
        ((32, 24, 32), "float16", [("args[1]", "48"), ("args[2]", "48")]),
        ((32, 20, 32), "float32", [("args[1]", "80"), ("args[2]", "80")]),
        ((1, 64, 32), "float16", [("args[1]", "1x64"), ("output", "1x32")]),
        ((32, 64, 40), "float16", [("args[2]", "64x40"), ("output", "32x40")]),
    ],
)
def test_the_cube_blocks_what_it_multiplies_and_makes(
    sizes: tuple[int, int, int], dtype: str, expected: list[tuple[str, str]]
) -> None:
    """A bias is in no block, however long it is."""
    rows = check(linear(*sizes, dtype), load_profile("huawei_ascend_cube"))  # type: ignore[arg-type]
    assert [(row.operand, row.measured) for row in rows] == expected


def test_tensor_cores_do_not_multiply_a_bias() -> None:
    rows = check(linear(16, 16, 42, "float16"), load_profile("nvidia_tensor_core"))  # type: ignore[arg-type]
    assert [(row.operand, row.measured) for row in rows] == [("args[2]", "84"), ("output", "84")]


@pytest.mark.parametrize("name", VENDORS)
def test_no_rule_for_some_operations_looks_at_a_bias(name: str) -> None:
    rules = tuple(rule for rule in load_profile(name).rules if rule.operations and rule.effect == "pad")
    rows = check(linear(16, 128, 42, "float16"), Profile(name, rules=rules))  # type: ignore[arg-type]
    assert all(row.operand != "args[0]" for row in rows)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        # M is 3, N is 20: neither is a multiple of 8; K is
        ("nvidia_tensor_core", PRODUCT, [("args[0]", "6"), ("args[1]", "40"), ("output", "6"), ("output", "40")]),
        # q is read three times, and rounded once
        ("google_tpu", ATTENTION, [("args[0]", "float32"), ("args[1]", "float32"), ("args[2]", "float32")]),
        # N is 20, K is 48: no multiples of 16 and of 32 bytes
        ("huawei_ascend_cube", INTEGERS, [("args[1]", "48x20"), ("output", "16x20"), ("args[0]", "48"),
                                          ("args[1]", "48")]),
    ],
)  # fmt: skip
def test_what_a_chip_says_of_products(name: str, given: object, expected: list[tuple[str, str]]) -> None:
    profile = load_profile(name)
    assert [(row.operand, row.measured) for row in check(given, profile)] == expected  # type: ignore[arg-type]


def test_ibm_spyre_tells_of_every_cast_that_its_numerics_make():
    profile = load_profile("ibm_spyre")
    (cast,) = (rule for rule in profile.of("dtype") if rule.effect == "cast")
    assert all(cast.value[wide] == narrow for wide, narrow in profile.numerics.casts.items())


@pytest.mark.parametrize(
    ("dtype", "effects"),
    [
        ("float32", []), ("float16", []), ("float8_e4m3fn", []), ("bool", ["cast"]), ("int64", ["cast", "fallback"]),
        ("int32", ["fallback"]), ("uint8", ["fallback"]), ("bfloat16", ["reject"]), ("float64", ["reject"]),
        ("complex64", ["reject"]),
    ],
)  # fmt: skip
def test_ibm_spyre_takes_no_integers_and_no_bfloat16(dtype: str, effects: list[str]) -> None:
    """The stricter of its two pages; token ids are not refused, but are the host's."""
    rules = tuple(load_profile("ibm_spyre").of("dtype"))
    rows = check(graph(placeholder("x", 4, 128, dtype=dtype)), Profile("ibm_spyre", rules=rules))
    assert [row.effect for row in rows] == effects
