"""Tab completion, by real shells in which the printed script is evaluated."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from on_terminal import sent_to

from inductor_debug.pipeline import completion
from inductor_debug.pipeline.cli import app

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LEVEL = ["model=", "accel=", "backend=", "stages=", "dtype=", "runner.", "accel."]

# a command line up to the cursor, some of the words that it is completed to, words that it must not be
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "a command": ("inductor-debug an", ["analyze "], ["run "]),
    "a group's choice": ("inductor-debug run model=res", ["resnet18 "], ["bert "]),
    "the module's": ("python -m pipeline model=res", ["resnet18 "], ["bert "]),
    "the module's, by path": (f"{BIN}/python -m pipeline accel=strict1", ["strict16 "], ["strict8 "]),
    "a level of keys": ("inductor-debug run ", LEVEL, ["accel.alignment="]),
    "a key": ("python -m pipeline accel.alignment_", ["accel.alignment_dims=", "accel.alignment_roles="], []),
    "a closed set": ("inductor-debug run accel=warn16 dtype=b", ["bfloat16 "], ["float32 "]),
    "a boolean": ("inductor-debug run stages.kerneldiff.plots=", ["true ", "false "], []),
    "a sweep's next value": ("inductor-debug run -m model=bert,res", ["bert,resnet18 "], ["resnet18 "]),
    "a list": ("inductor-debug run stages=[capture,con", ["[capture,constrain] "], ["[capture,lower] "]),
    "a selected stage's option": ("inductor-debug run stages=[guards] stages.guards.v", ["stages.guards.vary="], []),
    "a stage to remove": ("inductor-debug run ~stages.ben", ["~stages.benchmark "], []),
    "a flag": ("python -m pipeline --multi", ["--multirun "], []),
    "torch's registry": ("inductor-debug run backend=dynamo backend.name=cudag", ["cudagraphs "], []),
    "a reference": ("inductor-debug run reference.backend=aot_ea", ["aot_eager "], ["dynamo "]),
    "one's own YAML": ("inductor-debug run --config-dir my_conf accel=my_", ["my_chip "], []),
    "a stored run": ("inductor-debug show outputs/2026", ["outputs/2026-01-02/one-run "], []),
    "overrides of a rerun": ("inductor-debug rerun outputs/2026-01-02/one-run accel=warn1", ["warn16 "], []),
    "a run's script": ("inductor-debug repro outputs/2026-01-02/one-run mini", ["minified-g0.forward-relu.py "], []),
    "a profile to check against": ("inductor-debug check RUN accel=strict", ["strict16 ", "strict8 "], []),
    "an option's value": ("inductor-debug analyze --type kern", ["kernels "], ["json "]),
    "an open quote": ("inductor-debug run 'model=res", ["model=resnet18 "], []),
    "a column of the list": ("inductor-debug list mod", ["model=", "mode="], ["models= "]),
    "a column's value": ("inductor-debug list verdict=cr", ["crashed "], ["passed "]),
    "a model to list": ("inductor-debug list model=bert,res", ["bert,resnet18 "], ["bert,bert "]),
    "a column of what is removed": ("inductor-debug clean ver", ["verdict="], []),
    "the latest run": ("inductor-debug show la", ["latest "], []),
    "runs to check": ("inductor-debug check outputs/2026", ["outputs/2026-01-02/one-run "], []),
    "a grid's field": ("inductor-debug check RUN --grid align", ["alignment="], ["accel.alignment="]),
    "a report's format": ("inductor-debug report --format s", ["sarif "], ["json "]),
    "a format": ("inductor-debug export --format j", ["json "], ["table "]),
    "a run's format": ("inductor-debug run --format j", ["json "], []),
    "a flag before the command": ("inductor-debug --qu", ["--quiet "], ["--verbose "]),
    "a command behind a flag": ("inductor-debug -q an", ["analyze "], []),
    "a run's flag": ("python -m pipeline --ver", ["--verbose ", "--version "], []),
    "a flag of a rerun": ("inductor-debug rerun outputs/2026-01-02/one-run --q", ["--quiet "], []),
    "overrides of a search": ("inductor-debug minify outputs/2026-01-02/one-run stages.mini", ["stages.minify."], []),
    "nothing there is": ("inductor-debug run model=zzz", [], ["resnet18 "]),
}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    (tmp_path / "my_conf" / "accel").mkdir(parents=True)
    (tmp_path / "my_conf" / "accel" / "my_chip.yaml").write_text("name: my_chip\n")
    run = tmp_path / "outputs" / "2026-01-02" / "one-run"
    run.mkdir(parents=True)
    (run / "run.log").touch()
    (run / "summary.json").write_text("{}")
    (run / "repros").mkdir()
    (run / "repros/minified-g0.forward-relu.py").touch()
    return tmp_path


def environment() -> dict[str, str]:
    paths = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": paths, "PYTHONPATH": str(ROOT)}


BASH_PROGRAM = r"""
eval "$(inductor-debug completion bash)"
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}
function=$(complete -p "${2##*/}" | sed 's/.* -F \([^ ]*\).*/\1/')
"$function" "$2" "" ""
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("name", CASES)
def test_bash_completes(name: str, workplace: Path) -> None:
    line, wanted, unwanted = CASES[name]
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH_PROGRAM, "bash", line, line.split()[0]],
        cwd=workplace,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = done.stdout.splitlines()
    assert done.stderr == ""
    assert set(wanted) <= set(found), found
    assert not set(unwanted) & set(found)


INTERACTIVE = {
    "bash": ("startup.sh", 'eval "$(inductor-debug completion bash)"\nPS1=; bind "set bell-style none"\n',
             ["--noprofile", "--rcfile", "startup.sh", "-i"]),
    "zsh": (".zshrc", "autoload -Uz compinit; compinit -u; bindkey -e; bindkey '^I' complete-word\n"
            'eval "$(inductor-debug completion zsh)"\nPS1=\n', ["--no-global-rcs", "-i"]),
}  # fmt: skip


@pytest.mark.parametrize("shell", INTERACTIVE)
def test_a_terminal_shows_what_the_tab_key_completes(shell: str, workplace: Path) -> None:
    """The whole way: an interactive shell reads line and tab from a terminal, and runs what it made of them."""
    import pty

    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    startup, settings, words = INTERACTIVE[shell]
    (workplace / startup).write_text(settings)
    lines = b"inductor-debug run model=res\taccel=strict1\tstages=[capture,constrain] --cfg job\nexit\n"
    main, child = pty.openpty()
    process = subprocess.Popen(
        [shell, *words],
        stdin=child, stdout=child, stderr=child, cwd=workplace, start_new_session=True,
        env=environment() | {"TERM": "dumb", "ZDOTDIR": str(workplace)},
    )  # fmt: skip
    os.close(child)
    os.write(main, lines)
    shown = sent_to(main)
    process.wait(timeout=120)
    os.close(main)
    assert b"name: resnet18" in shown and b"name: strict16" in shown, shown


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize("name", ["a command", "a group's choice", "the module's", "a list", "a stored run"])
def test_fish_completes(name: str, workplace: Path) -> None:
    line, wanted, _ = CASES[name]
    program = "inductor-debug completion fish | source; complete -C $argv[1]"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program, line],
        cwd=workplace, env=environment() | {"HOME": str(workplace)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = done.stdout.split()
    assert done.stderr == ""
    assert all(any(word.endswith(part.strip()) for word in found) for part in wanted), found


def test_completing_imports_neither_torch_nor_what_else_is_slow(workplace: Path) -> None:
    heavy = ["torch", "pandas", "matplotlib", "transformers"]
    lines = [line for line, _, _ in CASES.values()]
    program = (
        "import sys; from inductor_debug.pipeline.cli import app\n"
        "from inductor_debug.pipeline.completion import candidates\n"
        f"[candidates(line, app) for line in {lines!r}]\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=workplace, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_every_command_and_every_option_of_it_is_completed() -> None:
    for command in app.registered_commands:
        assert command.name in completion.candidates("inductor-debug ", app)
        found = completion.candidates(f"inductor-debug {command.name} --", app)
        assert "--format" in found or command.name in ("completion", "dashboard")  # each has an answer for a program
        assert "--help" in completion.candidates(f"inductor-debug {command.name} --", app) or command.name == "run"


def test_no_line_makes_it_fail() -> None:
    """Every beginning of every line, and bytes that no command has."""
    strange = ["", " ", "'", "inductor-debug run '\"", "inductor-debug nosuch x", "python -m", "a\\", "run\x00=é[,"]
    for line in [*(line for line, _, _ in CASES.values()), *strange]:
        for end in range(len(line) + 1):
            completion.candidates(line[:end], app)


def test_what_is_completed_of_a_key_composes() -> None:
    from inductor_debug.pipeline.config.schema_fields import leaves

    found = set(completion.candidates("inductor-debug run stages.", app))
    assert found == {
        f"stages.{name}." for name in ("constrain", "kerneldiff", "benchmark", "report", "capture", "minify")
    }
    for key in leaves(()):
        assert f"{key}=" in completion.candidates(f"inductor-debug run {key}", app)
