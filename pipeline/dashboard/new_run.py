"""The page on which a run is chosen and started, and those that were started are watched."""

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from inductor_debug.models.errors import UserError
from inductor_debug.models.stored import lies_within
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.described_keys import Key, all_keys
from inductor_debug.pipeline.config.help import CONF, options
from inductor_debug.pipeline.dashboard import fields, show
from inductor_debug.pipeline.dashboard.children import Children, State, Ticket
from inductor_debug.pipeline.dashboard.follow import followed
from inductor_debug.pipeline.dashboard.outputs import Outputs
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.run.commands import refusal
from inductor_debug.pipeline.run.sweep.table import TABLE
from inductor_debug.stages.registry import declared

GROUPS = {"model": "Model", "accel": "Accelerator profile", "backend": "Backend"}
"""Group of the configuration → how its field is labelled."""
OF_CASE = ("dtype", "mode", "device")
"""Keys that have a field of their own."""
DEVICES = ("cpu", "cuda")
_CHECK_S = 120
_EVERY_S = 2.0


def page(outputs: Outputs) -> None:
    """The whole page."""
    st.title("New run")
    with show.errors():
        children = Children(outputs.root)
        words = _chosen({key.name: key for key in all_keys()})
        st.code(shlex.join(["inductor-debug", "run", *words]), language="bash", wrap_lines=True)
        if st.button("Start", type="primary"):
            refuse(words)
            children.start(words, _name(words))
            st.toast("Started; it goes on when this page is closed.")
        st.caption("It is this command, in a process of its own. Several runs wait for each other.")
    with show.errors():
        st.header("Started here")
        _started(outputs, Children(outputs.root))


def _defaults() -> Mapping[str, object]:
    """What ``conf/config.yaml`` chooses: groups, the stages, and keys of the top level."""
    stored = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    chosen = {name: value for entry in stored["defaults"] if isinstance(entry, dict) for name, value in entry.items()}
    return {**chosen, **{name: value for name, value in stored.items() if name not in ("defaults", "hydra")}}


def _chosen(known: Mapping[str, Key]) -> list[str]:
    """The words of what is chosen, without what is so by default; of a sweep several values of each."""
    defaults, picked = _defaults(), {}
    sweep = st.toggle("Sweep", key="sweep", help="Each field takes several values: a run for each combination.")
    offered = {group: (label, options(group), f"`{group}=NAME`") for group, label in GROUPS.items()}
    offered |= {name: (name, list(known[name].choices or DEVICES), fields.help_of(known[name])) for name in OF_CASE}
    columns = [*st.columns(len(GROUPS)), *st.columns(len(OF_CASE))]
    for column, (name, (label, listed, about)) in zip(columns, offered.items(), strict=True):
        picked[name] = _values(column, label, listed, str(defaults[name]), about, name, sweep=sweep)
    usual = [str(stage) for stage in defaults["stages"]]  # type: ignore[attr-defined]
    stages = st.multiselect("Stages", list(declared()), default=usual, key="stages", help="They run in this order.")
    words = [f"{name}={','.join(values)}" for name, values in picked.items() if values != [str(defaults[name])]]
    words += [] if stages == usual else [f"stages=[{','.join(stages)}]"]
    apart = {*GROUPS, *OF_CASE, "stages"}
    others = [name for name in known if name not in apart and not name.startswith("stages.")]
    others += [name for name in known if name.startswith("stages.") and name.split(".")[1] in stages]
    for name in st.multiselect("More options", others, key="more", help="Each has a field then."):
        words.append(f"{name}={fields.on_command_line(known[name])}")
    further = st.text_input("Further words", key="further", placeholder="+stages=profile accel.alignment=8,16,32",
                            help="As they are typed after `inductor-debug run`.")  # fmt: skip
    words += _split(further)
    return ["--multirun", *words] if sweep and not {"--multirun", "-m"} & {*words} else words


def _values(column: Any, label: str, listed: list[str], usual: str, about: str, key: str, *, sweep: bool) -> list[str]:
    """One field's values: one, or of a sweep any number.

    Args:
        column: where it stands. label: of it.
        listed: what may be chosen. usual: what is, before anybody chooses.
        about: its help. key: of the configuration.
        sweep: whether several may be chosen.
    """
    if sweep:
        chosen = [st.session_state.get(key, usual)]  # what stood in the field for one
        found: list[str] = column.multiselect(label, listed, default=chosen, help=about, key=f"{key} values")
        return found or [usual]
    first = next(iter(st.session_state.get(f"{key} values") or [usual]))
    return [str(column.selectbox(label, listed, index=listed.index(first), help=about, key=key))]


def _split(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError as error:
        raise UserError(f"got {visible(typed)!r}: {error}", key="Further words", valid="words as a shell has them",
                        hint="close the quotes") from error  # fmt: skip


def refuse(words: Sequence[str]) -> None:
    """UserError where the command line would refuse the words before anything runs."""
    command = [sys.executable, "-P", "-m", refusal.__name__, *words]
    with st.spinner("Checking"):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CHECK_S)
    if done.returncode:
        raise UserError(done.stderr.strip())


def _name(words: Sequence[str]) -> str:
    """What the directory of a run is called: what was chosen for it."""
    if {"--multirun", "-m"} & {*words}:
        return "sweep"
    chosen = dict(word.partition("=")[::2] for word in words)
    defaults = _defaults()
    return "-".join(str(chosen.get(group, defaults[group])) for group in GROUPS)


def _started(outputs: Outputs, children: Children) -> None:
    """The runs that were started here, looked at again and again while one goes on."""
    tickets = children.tickets()
    going = [ticket for ticket in tickets if children.state(ticket) != State.ENDED]
    if not tickets:
        st.caption("None yet.")
        return

    @st.fragment(run_every=_EVERY_S if going else None)
    def shown() -> None:
        states = {ticket.number: children.state(ticket) for ticket in tickets}
        if going and all(states[ticket.number] == State.ENDED for ticket in going):
            st.rerun()  # nothing is left to look at again
        for ticket in tickets:
            _one(outputs, children, ticket, states[ticket.number])

    shown()


def _one(outputs: Outputs, children: Children, ticket: Ticket, state: State) -> None:
    """One of them: what it is, how far it is, and what may be done with it."""
    run = Path(ticket.directory)
    there = run.is_dir() and lies_within(run, outputs.root)
    with st.container(border=True):
        st.code(shlex.join(["inductor-debug", "run", *ticket.words]), language="bash", wrap_lines=True)
        st.text(state if state != State.ENDED else _ended(run if there else None, stopped=children.stopped(ticket)))
        if state == State.RUNNING and there:
            _progress(run)
        left, right = st.columns(2)
        if state != State.ENDED and left.button("Stop the run", key=f"stop-{ticket.number}"):
            children.stop(ticket)
        if there and right.button("Open the run", key=f"open-{ticket.number}"):
            st.session_state["open"] = outputs.name_of(run)
            st.switch_page(st.session_state["pages"]["sweeps" if (run / TABLE).exists() else "runs"])
        said = children.said(ticket)
        if said:
            with st.expander("What it printed", expanded=state == State.ENDED and not there):
                show.text(said)


def _ended(run: Path | None, *, stopped: bool) -> str:
    """How a run or a sweep ended; None for one that stored nothing."""
    if stopped:
        return "stopped"
    rows = [store.row(each) for each in store.find_runs(run)] if run is not None else []
    if len(rows) != 1:
        found = Counter(row["verdict"] for row in rows)
        return f"ended: {', '.join(f'{count} {verdict}' for verdict, count in found.items()) or 'nothing was stored'}"
    (row,) = rows
    broken = f"{row['violations']} violations" if row["violations"] else ""
    numbers = f"numbers {row['numerics']}" if row["numerics"] else ""
    return f"ended: {', '.join(filter(None, (row['verdict'], broken, numbers)))}"


def _progress(run: Path) -> None:
    """Its stages, and the last that its log tells; of a sweep the jobs that have begun."""
    found = followed(run)
    if found.stages:
        st.progress(found.done / len(found.stages), text=f"{found.done} of {len(found.stages)} stages")
        show.table(("stage", "status"), [{"stage": name, "status": status} for name, status in found.stages.items()])
        st.text(found.last)
    elif run.is_dir():
        show.table(("run", "verdict"), map(store.row, store.find_runs(run)))
