"""Candidates: each shows what a fresh process would, whatever it does, and leaves nothing behind."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.minify import workers as module
from inductor_debug.stages.minify.workers import Outcome, Workers, WorkersError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

Run = Callable[..., Outcome]
SMALL = """
import torch

def f(x):
    return torch.relu(x.sin() + x * 2).sum(-1)

torch.set_num_threads(2)
x = torch.randn(512, 512)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(timeout_s=60) as started:
        yield started


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODULES", "ANSWERS", "_HEADERS"):
        monkeypatch.setattr(module, name, "")


@pytest.fixture(scope="module")
def shared_light_workers() -> Iterator[Workers]:
    with Workers(timeout_s=60) as started:
        yield started


@pytest.fixture
def light(shared_light_workers: Workers, without_torch: None) -> Workers:
    """Workers that have not imported torch: for what does not depend on it."""
    return shared_light_workers


@pytest.fixture(params=["forked", "fresh"])
def run(light: Workers, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(light, "_forks", request.param == "forked")
    return runner(light, tmp_path)


@pytest.fixture
def forked(light: Workers, tmp_path: Path) -> Run:
    return runner(light, tmp_path)


@pytest.fixture
def forked_with_torch(workers: Workers, tmp_path: Path) -> Run:
    return runner(workers, tmp_path)


def runner(workers: Workers, folder: Path) -> Run:
    numbers = itertools.count()

    def run(text: str, *arguments: str, timeout_s: float | None = None) -> Outcome:
        script = folder / f"candidate_{next(numbers)}.py"
        script.write_text(text)
        return workers.run(script, *arguments, timeout_s=timeout_s)

    return run


def ended(pid: int, within_s: float = 5.0) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def zygote_of(workers: Workers) -> psutil.Process:
    zygote = workers._zygote
    assert zygote is not None
    return psutil.Process(zygote.process.pid)


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(1)", 1, ""),
        ("import sys; sys.exit(2)", 2, ""),
        ("import os; print('lost', end=''); os._exit(3)", 3, ""),
        ("import sys; print('said'); sys.exit()", 0, "said\n"),
        ("import sys; sys.exit('a reason')", 1, "a reason\n"),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n"),
        ("import threading as t; t.Timer(0.2, print, ['late']).start(); print('early')", 0, "early\nlate\n"),
        ("import sys, os; print(repr(sys.stdin.read()), os.read(0, 1)); sys.stdin.close()", 0, "'' b''\n"),
        ("import sys; print(__name__, sys.flags.safe_path, hash('a') == hash('a'))", 0, "__main__ True True\n"),
        ("import os; os.close(1); os.close(2); import time; time.sleep(0.1)", 0, ""),
        ("import os; print(*os.listdir('/proc/self/fd'), *os.listdir())", 0, "0 1 2 3 candidate_0.py\n"),
    ],
)  # fmt: skip
def test_exit_codes_and_output_are_those_of_python(run: Run, text: str, code: int, output: str) -> None:
    found = run(text)

    assert (found.code, found.signal, found.timed_out, found.output) == (code, None, False, output)
    assert 0 < found.seconds < 60


@pytest.mark.parametrize("text", ["def f():\n    1 / 0\nf()", "x = (", "raise KeyError('k') from ValueError('v')"])
def test_an_uncaught_exception_prints_what_python_prints(run: Run, tmp_path: Path, text: str) -> None:
    found = run(text)

    python = subprocess.run([sys.executable, "-P", tmp_path / "candidate_0.py"], capture_output=True, text=True)
    assert (found.code, found.output) == (python.returncode, python.stderr) and found.code == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("import os; print('said', flush=True); os.abort()", signal.SIGABRT),
        ("import ctypes; print('said', flush=True); ctypes.string_at(0)", signal.SIGSEGV),
        ("print('said', flush=True); raise KeyboardInterrupt", signal.SIGINT),
        ("import os; print('said', flush=True); os.kill(0, 9)", signal.SIGKILL),  # its whole group
    ],
)
def test_a_signal_that_ends_a_script_is_told(run: Run, text: str, number: int) -> None:
    found = run(text)

    assert (found.code, found.signal, found.timed_out) == (None, number, False)
    assert found.output.startswith("said\n")


@pytest.mark.parametrize("first", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_a_script_that_hangs_is_killed(run: Run, first: str) -> None:
    found = run(first + "import os\nprint(os.getpid(), flush=True)\nwhile True: pass", timeout_s=1.0)

    assert (found.code, found.signal, found.timed_out) == (None, None, True)
    assert 1 <= found.seconds < 5 and ended(int(found.output))


@pytest.mark.parametrize("last", ["", "time.sleep(60)"])
def test_a_grandchild_ends_with_its_script(run: Run, last: str) -> None:
    found = run(
        "import subprocess, sys, time\n"
        f"print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)\n{last}",
        timeout_s=1.0,
    )

    assert found.timed_out == bool(last) and ended(int(found.output))


def test_one_that_left_the_session_ends_too(forked: Run) -> None:
    found = forked(
        "import subprocess, sys\n"
        "long = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "print(subprocess.Popen(long, start_new_session=True).pid)"
    )

    assert found.code == 0 and ended(int(found.output), 0.5)


def test_the_last_of_megabytes_is_kept(run: Run) -> None:
    found = run(
        "import sys\nfor _ in range(80): print('x' * 99_999)\nsys.stdout.flush(); print('end', file=sys.stderr)"
    )

    assert found.code == 0 and len(found.output) == 64 << 10
    assert found.output.endswith("xx\nend\n")


def test_one_that_never_stops_printing_is_killed(forked: Run) -> None:
    found = forked("while True: print('x' * 9_999)", timeout_s=1.0)

    assert found.timed_out and len(found.output) == 64 << 10


def test_arguments_and_the_folder_are_the_scripts(run: Run, tmp_path: Path) -> None:
    found = run("import os, sys; print(sys.argv, os.getcwd(), __file__)", "--x", "a b")

    script = str(tmp_path / "candidate_0.py")
    assert found.output == f"{[script, '--x', 'a b']} {tmp_path} {script}\n"


def test_neither_the_network_nor_this_tool_is_there(run: Run) -> None:
    assert "must not use the network" in run("import urllib.request as r; r.urlopen('http://127.0.0.1:9')").output
    found = run("import inductor_debug.stages.graphs.records")
    assert found.code == 1 and "must not need this tool: inductor_debug" in found.output


@pytest.mark.slow
def test_random_numbers_differ_from_run_to_run_and_hashes_do_not(forked_with_torch: Run) -> None:
    text = "import torch, random, numpy; print(torch.initial_seed(), random.random(), numpy.random.rand(), hash('a'))"
    *first, first_hash = forked_with_torch(text).output.split()
    *second, second_hash = forked_with_torch(text).output.split()

    assert first_hash == second_hash and len(first) == 3
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_two_runs_do_not_see_each_others_files(run: Run) -> None:
    text = (
        "import os, pathlib, tempfile\n"
        "folder = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
        "print(folder, *os.listdir(folder))\n"
        "(folder / 'mine').touch()"
    )
    first, second = run(text).output.split(), run(text).output.split()
    assert len(first) == len(second) == 1 and first != second
    assert not Path(first[0]).exists() and not Path(second[0]).exists()


def test_compiling_with_two_threads_works_in_a_forked_process(forked_with_torch: Run) -> None:
    threads = "import os, torch\nprint('threads', len(os.listdir('/proc/self/task')), torch.cuda.is_initialized())\n"
    found = forked_with_torch(threads + SMALL + threads)

    assert found.code == 0, found.output
    before, after = (line for line in found.output.splitlines() if line.startswith("threads"))
    assert before == "threads 1 False" and after.endswith(" False") and int(after.split()[1]) > 1


def test_torch_starts_as_in_a_fresh_process(workers: Workers, forked_with_torch: Run, tmp_path: Path) -> None:
    text = (
        "import torch, torch._inductor.config as inductor, torch._dynamo.config as dynamo\n"
        "print(torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_grad_enabled())\n"
        "print(inductor.force_disable_caches, inductor.compile_threads, torch.get_default_dtype())\n"
        "print(inductor.save_config_portable(), dynamo.save_config_portable())\n"
        "torch.manual_seed(3); print(torch.rand(3), torch.nn.Linear(2, 2).weight)"
    )
    inherited = forked_with_torch(text)
    fresh = workers._fresh(tmp_path / "candidate_0.py", (), 60)
    where_torch_was_imported = str(workers._folder / "zygote")
    assert inherited.code == 0
    assert inherited.output.replace(where_torch_was_imported, str(tmp_path)) == fresh.output


def test_a_zygote_killed_between_two_runs_is_replaced(light: Workers, forked: Run) -> None:
    assert forked("pass").code == 0
    before = zygote_of(light)
    before.kill()

    assert forked("print(1)").output == "1\n"
    assert zygote_of(light).pid != before.pid


def test_a_zygote_killed_during_a_run_is_replaced_and_the_run_repeated(forked: Run, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = forked(
        "import os, pathlib, signal, subprocess, time\n"
        f"mark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n"
        "    other = subprocess.Popen(['sleep', '60'])\n"
        "    mark.write_text(f'{os.getpid()} {other.pid}')\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)\n"
        "print('again')"
    )

    assert (found.code, found.output) == (0, "again\n")
    assert all(ended(int(pid)) for pid in mark.read_text().split())


def test_a_script_that_kills_every_zygote_is_told_of(tmp_path: Path, without_torch: None) -> None:
    with Workers() as few:
        run = runner(few, tmp_path)
        with pytest.raises(WorkersError, match=r"candidate_0\.py ended twice. First: SIGKILL. Then: SIGKILL"):
            run("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
        assert run("print(1)").output == "1\n"


def test_packages_are_imported_before_from_where_they_are(
    tmp_path: Path, without_torch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "vendor").mkdir(parents=True)
    (tmp_path / "site" / "vendor" / "__init__.py").write_text(
        "import os\nfrom inductor_debug.models import errors\nPID = os.getpid()\n"
    )
    (tmp_path / "site" / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    )
    (tmp_path / "site" / "broken.py").write_text("raise ValueError('no such device')\n")
    monkeypatch.syspath_prepend(tmp_path / "site")

    text = "import os, vendor; print(vendor.errors.__file__, vendor.PID == os.getppid(), os.environ['MINE'])"
    with Workers(packages=["vendor"], environment={"MINE": "7"}) as few:
        assert runner(few, tmp_path)(text).output == f"{sys.modules['inductor_debug.models.errors'].__file__} True 7\n"
    with Workers(packages=["vendor", "threaded"]) as few:  # which can't be forked
        found = runner(few, tmp_path)("import threaded, vendor, os; print(vendor.PID == os.getpid())")
        assert found.output == "True\n" and few._zygote is None
    with Workers(packages=["broken"]) as few, pytest.raises(WorkersError, match="ValueError: no such device"):
        runner(few, tmp_path)("pass")
    with pytest.raises(ConfigurationError, match="nowhere_to_be_found"):
        Workers(packages=["nowhere_to_be_found.backend"])


def test_nothing_is_left_once_closed(tmp_path: Path, without_torch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "temporary"))
    descriptors = len(os.listdir("/proc/self/fd"))
    few = Workers()
    run = runner(few, tmp_path)
    assert run("import tempfile; tempfile.mkstemp(); tempfile.mkdtemp()").code == 0
    zygote = zygote_of(few)
    few.close()

    assert ended(zygote.pid, 0.5) and not any((tmp_path / "temporary").iterdir())
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with pytest.raises(WorkersError, match="closed"):
        run("pass")
    few.close()


@pytest.mark.parametrize("busy", [False, True])
def test_a_parent_that_is_killed_leaves_no_zygote(tmp_path: Path, busy: bool) -> None:
    (tmp_path / "quick.py").write_text("pass")
    (tmp_path / "slow.py").write_text("import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)")
    text = (
        "import time; from pathlib import Path; from inductor_debug.stages.minify import workers as module\n"
        "module._HEADERS, module.MODULES, module.ANSWERS = '', (), ()\n"
        "few = module.Workers(); few.run(Path('quick.py')); print(few._zygote.process.pid, few._folder, flush=True)\n"
        f"few.run(Path('slow.py')) if {busy} else time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        zygote, folder = parent.stdout.readline().split()
        while busy and not ((pid := tmp_path / "pid").exists() and pid.read_text()):
            time.sleep(0.02)
        parent.kill()

    assert ended(int(zygote))
    assert not busy or ended(int(pid.read_text()))
    assert not Path(folder).exists()
