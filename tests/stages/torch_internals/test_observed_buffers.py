"""Generated modules that tell of their buffers: what is told, and that nothing else changes."""

import ast
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_corpus import PYTHON, TRITON, VERSIONS, facts, text_of

from inductor_debug.stages.torch_internals.generated_launches import launch_buffers
from inductor_debug.stages.torch_internals.observed_buffers import Observing, tell_of_buffers


class Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def inputs(self, graph: str, names: Mapping[str, Any]) -> None:
        self.told.append(("inputs", sorted(name for name in names if name.startswith("arg"))))

    def buffers(self, graph: str, values: Mapping[str, Any]) -> None:
        self.told.append(("buffers", dict(values)))

    def outputs(self, graph: str, values: Sequence[Any]) -> None:
        self.told.append(("outputs", list(values)))


MODULE = """
def call(args):
    arg0, arg1 = args
    args.clear()
    with guard():
        buf0 = empty_strided_cpu(2)
        buf1 = buf0; del buf0  # reuse
        buf2 = empty_strided_cpu(2)
        cpp_fused_0(arg0, buf1, buf2)
        del arg0
        buf3 = buf1; del buf1  # reuse
        cpp_fused_1(arg1, buf2, buf3)
        buf4 = extern(buf3)
        del buf3
        buf5 = buf4[0]
        del buf4
        aten.scatter_(buf2, 1)
        buf6 = empty_strided_cpu(2)
        return (reinterpret_tensor(buf2, 1), buf5, )
"""


def run(text: str, watcher: Watcher) -> Any:
    """The module with kernels that write a count into what they are given last."""
    import contextlib

    def write(*buffers: list[int]) -> None:
        write.calls += 1
        buffers[-1][0] = write.calls

    write.calls = 0
    names: dict[str, Any] = {
        "guard": contextlib.nullcontext, "empty_strided_cpu": lambda size: [0] * size, "cpp_fused_0": write,
        "cpp_fused_1": write, "extern": lambda x: ([7], x), "reinterpret_tensor": lambda x, _: x,
        "aten": type("aten", (), {"scatter_": staticmethod(lambda x, _: x.__setitem__(0, 9))}),
    }  # fmt: skip
    observing = Observing(watcher)
    exec(observing.rewrite("g0.forward", text), names)
    return names["call"]([[1], [2]]), observing


def test_each_buffer_is_told_of_once_with_what_its_readers_got() -> None:
    watcher = Watcher()
    result, _ = run(MODULE, watcher)
    kinds = [kind for kind, _ in watcher.told]
    assert kinds[0] == "inputs" and watcher.told[0][1] == ["arg0", "arg1", "args"]
    assert kinds[-1] == "outputs" and watcher.told[-1][1] == list(result)
    names = [name for kind, value in watcher.told if kind == "buffers" for name in value if name.startswith("buf")]
    assert sorted(names) == ["buf1", "buf2", "buf3", "buf4", "buf5"]  # buf0 was never written, buf6 never given


def test_a_buffer_that_others_write_into_later_is_told_of_as_they_left_it() -> None:
    watcher = Watcher()
    run(MODULE, watcher)
    found = {name: value for kind, told in watcher.told if kind == "buffers" for name, value in told.items()}
    assert found["buf2"] == [9, 0]  # by scatter_, which has no handle of its own


def test_a_module_whose_watcher_is_gone_runs_and_tells_nobody() -> None:
    tell_of_buffers(10**9, "g0.forward", "buffers", {})
    watcher = Watcher()
    _, observing = run(MODULE, watcher)
    number, count = observing.number, len(watcher.told)
    del observing
    tell_of_buffers(number, "g0.forward", "buffers", {})
    assert len(watcher.told) == count


def test_a_part_of_a_wrapper_tells_of_its_buffers_and_begins_no_graph() -> None:
    watcher = Watcher()
    parts = MODULE.replace("def call(args)", "def partition_0(args)") + "\ndef call(args):\n    arg0, arg1 = args\n"
    run(parts + "    args.clear()\n    (buf2, buf5) = partition_0([arg0, arg1])\n    return (buf2, buf5)\n", watcher)
    kinds = [kind for kind, _ in watcher.told]
    assert (kinds.count("inputs"), kinds.count("outputs")) == (1, 1) and kinds[0] == "inputs"
    assert {"buf1", "buf3"} <= {name for kind, told in watcher.told if kind == "buffers" for name in told}


def test_text_without_a_wrapper_stays_and_a_wrapper_in_cpp_is_named() -> None:
    observing = Observing(Watcher())
    kernel = "import triton\n\ndef triton_poi(in_ptr0, out_ptr0):\n    pass\n"
    assert observing.rewrite("g0.forward", kernel) == kernel and not observing.missing
    text = "cpp_wrapper_src = ''\n" + textwrap.dedent(MODULE)
    assert observing.rewrite("g1.forward", text) == text and "C++" in observing.missing["g1.forward"]


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("module", (*PYTHON, *TRITON))
def test_every_buffer_of_a_launch_is_told_of_in_what_each_release_wrote(folder: Path, module: str) -> None:
    text = text_of(folder, module)
    changed = Observing(Watcher()).rewrite("g0.forward", text)
    calls = [item for item in ast.walk(ast.parse(changed))
             if isinstance(item, ast.Call) and getattr(item.func, "id", "") == "_tell_of_buffers"]  # fmt: skip
    calls.sort(key=lambda call: call.lineno)
    told = [key.value for call in calls if call.args[2].value == "buffers" for key in call.args[3].keys]
    given = {name for names in launch_buffers(text, facts(folder, module)["buffers"]).values() for name in names}
    assert given <= set(told) and len(told) == len(set(told))
    assert [call.args[2].value for call in calls if call.args[2].value != "buffers"] == ["inputs", "outputs"]
    without = [line for line in changed.splitlines() if "_tell_of_buffers" not in line]
    assert "\n".join(without).strip() == text.strip()
