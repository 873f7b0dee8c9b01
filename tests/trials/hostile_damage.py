"""Ways in which a stored run can be damaged, or made to harm whoever reads it.

Each is a function of a run's folder. What a disk or a killed process does leaves the manifest as it was
(:data:`DAMAGE`). A person who wants to be believed writes the new SHA-256 into the manifest (:data:`HOSTILE`). That
damage is one or more of: a payload that would create :data:`MARKER`, a look at the variable :data:`SECRET`, a text that
steers a terminal, a bomb, a way out of the folder.
"""

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECRET = "TRIAL_SECRET"
SECRET_VALUE = "the-value-that-nobody-may-see"
MARKER = "TRIAL_MARKER"
"""Variable with the path of the file that a payload creates."""

STEERING = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e\u2066\r\nforged  line\x7f"
PAYLOAD = "import os\nopen(os.environ['TRIAL_MARKER'], 'a').write(__name__)\ndef pwn(*a, **k):\n    return []\n"
CONFIG, SUMMARY, MANIFEST = ".hydra/config.yaml", "summary.json", "manifest.json"
VIOLATIONS, OUTPUTS, BREAKS = "constrain/violations.csv", "kerneldiff/outputs.csv", "capture/breaks.json"

Damage = Callable[[Path, random.Random], None]


def graph_file(run: Path) -> str:
    return sorted(path.relative_to(run).as_posix() for path in run.glob("capture/graphs/*.forward.json"))[0]


def provenance_file(run: Path) -> str:
    return sorted(path.relative_to(run).as_posix() for path in run.glob("lower/*/provenance.json"))[0]


def sign(run: Path) -> None:
    """Tell the files as they are now in the manifest."""
    manifest = json.loads((run / MANIFEST).read_text())
    files = [path for path in run.rglob("*") if path.is_file() and path.name != MANIFEST]
    manifest["files"] = {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                         for path in sorted(files) if path.stat().st_size < 2**24}  # fmt: skip
    (run / MANIFEST).write_text(json.dumps(manifest))


def edit(run: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change a JSON file's content."""
    content = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps(change(content) or content))


# What disks and killed processes do, and what is plainly no run's file -----------------------------------------------


def truncated(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: draw.randrange(1, len(content) - 1)])

    return apply


def flipped(pick: Callable[[Path], str]) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        content = bytearray((run / pick(run)).read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (run / pick(run)).write_bytes(content)

    return apply


def replaced(name: str, content: bytes) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        (run / name).write_bytes(content)

    return apply


def removed(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return apply


def fifo(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return apply


def socket_file(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        (run / name).unlink()
        here = os.getcwd()
        os.chdir((run / name).parent)  # a socket's path is short
        try:
            with socket.socket(socket.AF_UNIX) as opened:
                opened.bind((run / name).name)
        finally:
            os.chdir(here)

    return apply


def link(name: str, target: str) -> Damage:
    """``target`` is absolute, or relative to the run."""

    def apply(run: Path, draw: random.Random) -> None:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        (run / name).symlink_to(target)

    return apply


def sparse(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        with (run / name).open("r+b") as file:
            file.truncate(2**40)

    return apply


def folder_instead(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return apply


def unreadable(name: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        (run / name).chmod(0)

    return apply


def swapped(run: Path, draw: random.Random) -> None:
    """The violations of another run."""
    lines = (run / VIOLATIONS).read_text().splitlines(keepends=True)
    (run / VIOLATIONS).write_text("".join(lines[:1]))


DAMAGE: dict[str, Damage] = {
    "summary cut short": truncated(SUMMARY),
    "summary bit flipped": flipped(lambda run: SUMMARY),
    "summary empty": replaced(SUMMARY, b""),
    "summary of nested lists": replaced(SUMMARY, b"[" * 200_000),
    "summary of zeros": replaced(SUMMARY, bytes(4096)),
    "summary no UTF-8": replaced(SUMMARY, b'{"run": "\xff\xfe"}'),
    "summary a FIFO": fifo(SUMMARY),
    "summary a socket": socket_file(SUMMARY),
    "summary a folder": folder_instead(SUMMARY),
    "summary a terabyte, sparse": sparse(SUMMARY),
    "summary a link out": link(SUMMARY, "../../outside/summary.json"),
    "summary a device": link(SUMMARY, "/dev/zero"),
    "summary a link to itself": link(SUMMARY, SUMMARY),
    "summary gone": removed(SUMMARY),
    "summary unreadable": unreadable(SUMMARY),
    "manifest cut short": truncated(MANIFEST),
    "manifest bit flipped": flipped(lambda run: MANIFEST),
    "manifest a FIFO": fifo(MANIFEST),
    "manifest gone": removed(MANIFEST),
    "configuration cut short": truncated(CONFIG),
    "configuration a FIFO": fifo(CONFIG),
    "configuration gone": removed(".hydra"),
    "graph bit flipped": flipped(graph_file),
    "capture gone": removed("capture"),
    "capture a link out": link("capture", "../../outside"),
    "breaks a FIFO": fifo(BREAKS),
    "violations gone": removed(VIOLATIONS),
    "violations of another run": swapped,
    "outputs bit flipped": flipped(lambda run: OUTPUTS),
    "outputs a terabyte, sparse": sparse(OUTPUTS),
    "lower gone": removed("lower"),
    "provenance bit flipped": flipped(provenance_file),
    "kerneldiff unreadable": unreadable("kerneldiff"),
    "run unreadable": unreadable("."),
}  # fmt: skip


# What a person does who wants it to be believed ----------------------------------------------------------------------


def signed(change: Damage) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        change(run, draw)
        sign(run)

    return apply


def summary(change: Callable[[Any], Any]) -> Damage:
    return signed(lambda run, draw: edit(run, SUMMARY, change))


def graph(change: Callable[[Any], Any]) -> Damage:
    return signed(lambda run, draw: edit(run, graph_file(run), change))


def configuration(old: str, new: str) -> Damage:
    def apply(run: Path, draw: random.Random) -> None:
        text = (run / CONFIG).read_text()
        assert old in text, f"{old!r} is not in the configuration"
        (run / CONFIG).write_text(text.replace(old, new, 1))

    return signed(apply)


def put(target: dict[str, Any], key: str, value: Any) -> None:
    target[key] = value


def custom_rule(run: Path, draw: random.Random) -> None:
    """A rule of the run's own profile that is a callable, the module beside it and below the working directory."""
    (run / "evil.py").write_text(PAYLOAD)
    rule = "\n  rules:\n  - {rule: custom, value: {_target_: evil.pwn}}"
    text = (run / CONFIG).read_text()
    (run / CONFIG).write_text(text.replace("\n  rules: []", rule, 1))
    assert "evil.pwn" in (run / CONFIG).read_text()


def declared_rule(run: Path, draw: random.Random) -> None:
    """The same, as what the run's backend declared."""
    (run / "evil.py").write_text(PAYLOAD)
    text = (run / CONFIG).read_text()
    (run / CONFIG).write_text(
        text.replace("name: warn8", "name: none", 1).replace("alignment: 8", "alignment: null", 1)
    )
    rule = {"rule": "custom", "value": {"_target_": "evil.pwn"}}
    declared = {"name": "chip", "strict": True, "rules": [rule], "waivers": [], "own_check": False}
    (run / "constrain/declared.json").write_text(json.dumps(declared))


def shadowing_modules(run: Path, draw: random.Random) -> None:
    """Modules named like what a reader may import, in the folder that it is started from."""
    for name in ("numexpr", "bottleneck", "sitecustomize", "usercustomize", "yaml", "pandas", "omegaconf", "models",
                 "stages", "pipeline", "matplotlib", "hydra_plugins", "evil", "netz", "torch", "secrets"):  # fmt: skip
        (run / f"{name}.py").write_text(PAYLOAD)
    (run / "matplotlibrc").write_text("text.usetex: True\nbackend: module://evil\n")
    (run / "hydra_plugins").mkdir(exist_ok=True)
    (run / "hydra_plugins/plugin.py").write_text(PAYLOAD)


def hydra_section(run: Path, draw: random.Random) -> None:
    """A launcher and callbacks in Hydra's stored section."""
    (run / "evil.py").write_text(PAYLOAD)
    (run / ".hydra/hydra.yaml").write_text(
        "hydra:\n  launcher: {_target_: evil.pwn}\n  callbacks: {x: {_target_: evil.pwn}}\n"
        "  searchpath: ['pkg://evil']\n"
    )


def model_target(run: Path, draw: random.Random) -> None:
    (run / "evil.py").write_text(PAYLOAD)
    lines = (run / CONFIG).read_text().splitlines()
    changed = [line.partition("_target_:")[0] + "_target_: evil.pwn" if "_target_:" in line else line for line in lines]
    (run / CONFIG).write_text("\n".join(changed) + "\n")


def alias_bomb(run: Path, draw: random.Random) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (run / CONFIG).write_text("\n".join(lines) + "\n" + (run / CONFIG).read_text())


def steering_texts(run: Path, draw: random.Random) -> None:
    """Every text of the run ends with what steers a terminal."""
    names = [SUMMARY, graph_file(run), provenance_file(run), BREAKS, "capture/guards.json", "lower/summary.json"]
    for name in names:
        if (run / name).is_file():
            content = json.loads((run / name).read_text())
            (run / name).write_text(json.dumps(_steered(content)))
    for name in (VIOLATIONS, OUTPUTS):
        quoted = '"' + STEERING.replace('"', '""') + '"'
        head, *rows = (run / name).read_text().splitlines()
        (run / name).write_text("\n".join([head, *(f"{quoted}{row[row.index(',') :]}" for row in rows)]) + "\n")
    (run / CONFIG).write_text((run / CONFIG).read_text().replace("dtype: float32", 'dtype: "\\e[31m\\u202E"', 1))


_KEPT = ("verdict", "status", "name", "op", "kind", "id", "graph", "target", "node", "inputs", "dtype", "shape",
         "stride", "file", "type", "role")  # fmt: skip


def _steered(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _KEPT or value.startswith("g0.") else value + STEERING
    if isinstance(value, dict):
        return {name: _steered(item, name) for name, item in value.items()}
    return [_steered(item, key) for item in value] if isinstance(value, list) else value


def unknown_nodes(content: Any) -> None:
    content["nodes"][-1]["inputs"] = ["nobody"]


def big_expression(content: Any) -> None:
    content["symbols"] = {"s0": {"hint": 9, "min": 2, "max": None}}
    for node in content["nodes"]:
        for tensor in node["outputs"]:
            tensor["shape"] = ["64**1000000000" if index else "(((s0**7)**7)**7)**7" for index in
                               range(len(tensor["shape"]))]  # fmt: skip


def deep_expression(content: Any) -> None:
    content["nodes"][0]["outputs"][0]["shape"] = ["-" * 100_000 + "s0", "(" * 5000 + "s0" + ")" * 5000]
    content["nodes"][0]["outputs"][0]["hints"] = [1, 1]


def huge_sizes(content: Any) -> None:
    for node in content["nodes"]:
        for tensor in node["outputs"]:
            tensor["shape"] = [2**62] * len(tensor["shape"])


def leaking(run: Path, draw: random.Random) -> None:
    """Interpolations wherever a text is, the profile's fields among them."""
    text = (run / CONFIG).read_text()
    look = f"${{oc.env:{SECRET}}}"
    text = text.replace("alignment: 8", f"alignment: {look}", 1).replace("seed: 0", f"seed: {look}", 1)
    (run / CONFIG).write_text(text.replace("dtype: float32", f"dtype: ${{oc.decode:{look}}}", 1))
    edit(run, SUMMARY, lambda content: put(content["run"], "model", look))


def many_columns(run: Path, draw: random.Random) -> None:
    (run / VIOLATIONS).write_text((run / VIOLATIONS).read_text() + "a,b,c\n" + "," * 100_000 + "\n")


HOSTILE: dict[str, Damage] = {
    "rule that is a callable": signed(custom_rule),
    "declared rule that is a callable": signed(declared_rule),
    "modules that shadow": signed(shadowing_modules),
    "launcher and callbacks": signed(hydra_section),
    "model that is a payload": signed(model_target),
    "Python object in YAML": configuration("seed: 0", "seed: !!python/object/apply:os.system ['touch $TRIAL_MARKER']"),
    "alias bomb": signed(alias_bomb),
    "nested YAML": signed(replaced(CONFIG, b"a: " + b"[" * 50_000)),
    "a key twice in YAML": configuration("seed: 0", "seed: 0\nseed: 1"),
    "variable in the profile": signed(leaking),
    "variable in a description": configuration("strict: false", f"strict: ${{oc.env:{SECRET}}}"),
    "unknown resolver": configuration("alignment: 8", "alignment: ${evil:1}"),
    "texts that steer a terminal": signed(steering_texts),
    "half a surrogate pair": summary(lambda content: put(content["run"], "model", "\ud800\udfff\udc00")),
    "stages no list": summary(lambda content: put(content, "stages", {"name": 1})),
    "a stage's status a list": summary(lambda content: put(content["stages"][0], "status", ["passed"])),
    "verdict of another kind": summary(lambda content: put(content, "verdict", "fits")),
    "numbers that are texts": summary(lambda content: put(content, "violations", {"total": "none"})),
    "interval of three": summary(lambda content: put(content, "benchmark", {"speedup_ci95": [1, 2, 3]})),
    "whole number of 5,000 digits": signed(replaced(SUMMARY, b'{"run": {}, "verdict": "passed", "stages": [], "x": '
                                                    + b"9" * 5000 + b"}")),
    "number beyond floats": signed(replaced(SUMMARY, b'{"run": {"seconds": 1e999}, "verdict": "passed", '
                                             b'"stages": []}')),
    "no number": signed(replaced(SUMMARY, b'{"run": {"seconds": NaN}, "verdict": "passed", "stages": []}')),
    "a key twice in JSON": signed(replaced(SUMMARY, b'{"run": {}, "verdict": "failed", "verdict": "passed", '
                                           b'"stages": []}')),
    "node that nobody made": graph(unknown_nodes),
    "expression without end": graph(big_expression),
    "expression too deep": graph(deep_expression),
    "sizes beyond 64 bits together": graph(huge_sizes),
    "graph of another id": graph(lambda content: put(content, "id", "../../../outside/graph")),
    "table of uneven rows": signed(many_columns),
    "table of huge cells": signed(replaced(OUTPUTS, b'kind,path,verdict\n"' + b"x" * (17 * 2**20) + b'",y,exact\n')),
    "cells that are no numbers": signed(replaced(VIOLATIONS, b"graph,node,module,source,rule,effect,severity,"
                                                 b"suggestion,cost_bytes,cost_share\ng,n,m,s,r,e,error,x,[[[[,1e999\n")),
    "launches no list": signed(lambda run, draw: edit(run, provenance_file(run), lambda content: {"kernels": {}})),
    "a launch without a name": signed(lambda run, draw: edit(run, provenance_file(run), lambda content: put(
        content["kernels"][0], "name", None))),
    "breaks no list": signed(replaced(BREAKS, b'"data-dependent"')),
}  # fmt: skip

NAMES = {
    "newline and escape in the name": "1-a\n2026-01-01 forged passed \x1b[31m\u202e",
    "mathematics in the name": "1-$\\frac{",
    "equals sign in the name": "1-accel=strict16",
}
"""A folder's own name; the run in it is whole."""


def every() -> list[str]:
    """Names of all the folders, in the order in which they are tried."""
    return [*DAMAGE, *HOSTILE, *NAMES]


def make(kind: str, good: Path, parent: Path, seed: int) -> Path:
    """A folder of that kind made of a copy of ``good``, below ``parent``."""
    folder = parent / NAMES.get(kind, "1-hostile")
    shutil.copytree(good, folder, symlinks=True)
    change = DAMAGE.get(kind) or HOSTILE.get(kind)
    if change is not None:
        change(folder, random.Random(f"{seed} {kind}"))
    return folder
