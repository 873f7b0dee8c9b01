"""The stored source: the innermost functions around the lines that operations came from."""

from pathlib import Path

from inductor_debug.stages.capture.sources import excerpts
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine

SOURCE = """import torch

SCALE = 2.0


class Net(torch.nn.Module):
    def helper(self, x):
        return x * SCALE

    @torch.no_grad()
    def forward(self, x):
        def inner(y):
            return y + 1

        y = self.helper(x)
        return inner(y)


def unused():
    return None
"""


def graph(*places: tuple[str, int]) -> GraphRecord:
    nodes = [NodeRecord(f"n{at}", "call_function", "aten.add.Tensor", source=SourceLine(file, line))
             for at, (file, line) in enumerate(places)]  # fmt: skip
    return GraphRecord(id="g0.forward", kind="forward", nodes=nodes)


def test_each_function_around_a_line_is_stored_once(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(SOURCE)
    found = excerpts([graph((str(file), 8), (str(file), 15)), graph((str(file), 15), (str(file), 16))])
    assert [(item.first, item.text.splitlines()[0].strip()) for item in found] == [
        (7, "def helper(self, x):"),
        (10, "@torch.no_grad()"),
    ]
    assert found[1].text.splitlines()[-1].strip() == "return inner(y)"
    assert "unused" not in "".join(item.text for item in found)


def test_the_innermost_function_is_taken_and_what_touches_is_one(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(SOURCE)
    (inner,) = excerpts([graph((str(file), 13))])
    assert (inner.first, inner.text.count("\n")) == (12, 1)
    (whole,) = excerpts([graph((str(file), 13), (str(file), 15))])
    assert whole.first == 10 and whole.text.count("def ") == 2


def test_a_line_outside_functions_or_of_no_python_stands_alone(tmp_path: Path) -> None:
    module, other = tmp_path / "net.py", tmp_path / "kernel.txt"
    module.write_text(SOURCE)
    other.write_text("not ( python\nsecond line\n")
    found = excerpts([graph((str(module), 3), (str(other), 2), (str(tmp_path / "gone.py"), 1))])
    assert [(Path(item.file).name, item.first, item.text) for item in found] == [
        ("kernel.txt", 2, "second line"),
        ("net.py", 3, "SCALE = 2.0"),
    ]
