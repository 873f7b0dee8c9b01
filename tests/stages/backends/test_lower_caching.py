"""What a compilation met in the caches, in words: where compiled files were found, and how many."""

from pathlib import Path

import pytest

from inductor_debug.stages.backends.compile_caches import cache_use
from inductor_debug.stages.torch_internals.graph_cache import GraphLookups


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """TorchInductor's cache, Triton's, and that of precompiled headers: all empty."""
    found = [tmp_path / name for name in ("inductor", "triton", "headers")]
    for folder in found:
        folder.mkdir()
    monkeypatch.setattr("inductor_debug.stages.torch_internals.graph_cache.cache_folders", lambda: found)
    return found


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_a_compilation_is_cold_where_no_folder_held_a_compiled_file(folders: list[Path]) -> None:
    fill(folders[0], "kernel.cpp", "graph.py")
    with cache_use(by_inductor=True) as use:
        fill(folders[0], "kernel.so")
    assert (use.kind, use.made, use.found) == ("cold", 1, 0)


@pytest.mark.parametrize(("made", "kind"), [((), "warm"), (("kernel.so",), "partly warm")])
def test_the_folder_is_named_where_files_were_found(folders: list[Path], made: tuple[str, ...], kind: str) -> None:
    """As with a fresh cache beside precompiled headers, which torch keeps in the temporary folder."""
    inductor, triton, headers = folders
    fill(headers, "one.gch", "two.gch")
    with cache_use(by_inductor=True) as use:
        fill(inductor, *made)
    assert use.kind == kind and f"2 in {headers}" in use.reason
    assert str(inductor) not in use.reason and str(triton) not in use.reason
    assert use.found_in == {str(headers): 2}


@pytest.mark.parametrize(
    ("files", "lookups", "kind", "reason"),
    [
        (0, (2, 0, 0), "warm", "2 compiled graphs came out of the cache in "),
        (0, (1, 1, 0), "partly warm", "TorchInductor compiled 1 graph not in the cache, beside "),
        (2, (0, 0, 2), "partly warm", "TorchInductor compiled 2 graphs that torch can't store, beside "),
        (
            2,
            (1, 0, 0),
            "warm",
            "no compiler ran: what was needed was among the compiled files that were there before: ",
        ),
    ],
)
def test_a_graph_that_is_compiled_anew_makes_no_warm_compilation(
    folders: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    lookups: tuple[int, int, int],
    kind: str,
    reason: str,
) -> None:
    """Its object code may be there all the same, by content."""
    told = iter((GraphLookups(0, 0, 0), GraphLookups(*lookups)))
    monkeypatch.setattr(GraphLookups, "now", lambda: next(told))
    fill(folders[0], *(f"{number}.so" for number in range(files)))
    with cache_use(by_inductor=True) as use:
        pass
    assert use.kind == kind and use.reason.startswith(reason)


def test_a_compilation_that_looks_no_graph_up_has_missed_none(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lower's, which stores what it compiles for other processes."""
    told = iter((GraphLookups(0, 0, 0), GraphLookups(0, 1, 0)))
    monkeypatch.setattr(GraphLookups, "now", lambda: next(told))
    fill(folders[0], "kernel.so")
    with cache_use(by_inductor=True, looks_up=False) as use:
        pass
    assert use.kind == "warm"


@pytest.mark.parametrize("made", [(), ("kernel.so",)])
def test_each_folder_is_named_with_what_it_held(folders: list[Path], made: tuple[str, ...]) -> None:
    """Without a cache folder of the user's the headers are in TorchInductor's own: they are counted once."""
    inductor, triton, _ = folders
    folders[2] = headers = inductor / "headers"
    fill(inductor, "kernel.so")
    fill(triton, "a.cubin", "b.cubin", "c.cubin")
    fill(headers, "one.gch", "two.gch")
    with cache_use(by_inductor=True) as use:
        fill(inductor, *(f"new_{name}" for name in made))
    assert use.reason.endswith(f"1 in {inductor}, 3 in {triton}, 2 in {headers}")
    assert use.found == sum(use.found_in.values()) == 6


def test_triton_files_count_where_torch_names_their_folder_as_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchInductor sets the variable itself, at the first Triton kernel of a process."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    kernels = tmp_path / "inductor/triton/0"
    kernels.mkdir(parents=True)
    (tmp_path / "elsewhere/.triton/cache").mkdir(parents=True)
    fill(tmp_path / "elsewhere/.triton/cache", "a.cubin")  # of a program without TorchInductor
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    fill(kernels, "one.cubin")
    with cache_use(by_inductor=True) as use:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(kernels))
        fill(kernels, "two.cubin")
    assert use.kind == "partly warm" and use.made == 1
    assert use.found_in[str(tmp_path / "inductor")] == 1 and use.found == sum(use.found_in.values())
