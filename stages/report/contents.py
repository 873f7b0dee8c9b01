"""The first screen of the report: what each section answers, the run in a sentence, and what to type next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inductor_debug.stages.formatting import stage_note
from inductor_debug.stages.registry import declared
from inductor_debug.stages.report.sections import Answer, Shown, State, raised, said

_OF_STATUS: Mapping[str, tuple[State, str]] = {
    "passed": ("told", "passed"),
    "failed": ("bad", "failed"),
    "crashed": ("bad", "crashed"),
    "timed_out": ("bad", "timed out"),
    "skipped": ("unknown", "skipped"),
}
"""Status of a stage → what stands in the contents where its section says nothing itself."""
_ORDER: Sequence[State] = ("bad", "told", "warn", "unknown")
"""Whose commands come first: after what is bad, what was found out about it."""
_ENDED = {"crashed": "crashes", "timed_out": "times out"}
_WRONG_FIRST: Sequence[State] = ("bad", "warn", "unknown", "good", "told")
_COMMANDS = 3
_PASSED = {
    "profile": "inductor-debug rerun RUN 'stages=[profile,report]'",
    "": "inductor-debug compare RUN LATER_RUN",
}
"""What one may want after a run in which nothing is wrong, by the stage that would have done it."""


@dataclass(frozen=True)
class Entry:
    """One line of the contents.

    Attributes:
        key: of the section's data in ``report.json``; ``section-KEY`` on the page.
        title: the section's heading.
        stage: whose section it is.
        state, word, text, does, then: as of :class:`~stages.report.sections.Answer`.
        empty: whether the section has no data, so that ``text`` is all there is to say.
        figures: behind ``text``, where that is what the stage said.
    """

    key: str
    title: str
    stage: str
    state: State
    word: str
    text: str = ""
    does: str = ""
    then: tuple[str, ...] = ()
    empty: bool = False
    figures: tuple[str, ...] = ()


def contents_of(shown: Mapping[str, Shown], data: Mapping[str, Any]) -> list[Entry]:
    """An entry for each section that has something to show, or whose stage should have given it something.

    What the sentence about the run calls bad comes first.

    Args:
        shown: key → section.
        data: of the report: ``stages``, ``run``, ``repros`` and the data of each section by its key.
    """
    entries = []
    for key, item in shown.items():
        empty = is_empty(data[key])
        answer = item.section.answer(data[key], data)
        if answer is None and (not empty or _missed(item.stage, key, data)):
            answer = _of_stage(item.stage, data)
        if answer is not None:
            figures = _figures(answer, item.stage, data)
            entries.append(Entry(key, item.section.title, item.stage, **vars(answer), empty=empty, figures=figures))
    return sorted(entries, key=lambda entry: not (entry.state == "bad" and entry.does))


def _figures(answer: Answer, stage: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """The lines below the sentence that a stage said, where a section answers with it."""
    messages = (str(item.get("message") or "") for item in data["stages"] if item.get("name") == stage)
    told, *figures = next(messages, "").split("\n")
    return tuple(figures) if told and answer.text.startswith(told) else ()


def _status(name: str, data: Mapping[str, Any]) -> str | None:
    found = next((stage.get("status") for stage in data["stages"] if stage.get("name") == name), None)
    return None if found is None else str(found)


def _missed(name: str, key: str, data: Mapping[str, Any]) -> bool:
    """Whether a section without data is to be told of: the first of a stage that ended badly, or that runs miss."""
    stage = declared().get(name)
    if stage is None or stage.sections[0].key != key:
        return False
    return bool(stage.subject) or _status(name, data) in ("failed", "crashed", "timed_out")


def _of_stage(name: str, data: Mapping[str, Any]) -> Answer:
    """What became of a stage."""
    status = _status(name, data)
    note = f"The s{stage_note(data['stages'], name).removeprefix('the s')}."
    if status is None:
        stage = declared().get(name)
        runs = {row.get("name") for row in data["stages"]}
        ended_badly = any(row.get("status") in ("failed", "crashed", "timed_out") for row in data["stages"])
        may = stage is not None and runs.issuperset(stage.needs) and not ended_badly
        return Answer("unknown", "not asked", note, then=(f"inductor-debug rerun RUN +stages={name}",) if may else ())
    state, word = _OF_STATUS.get(status, ("unknown", status))
    then = ("inductor-debug minify RUN",) if status in _ENDED and is_empty(data.get("minified")) else ()
    _, key, longer = said(data, name).rpartition("runner.timeout_s=") if status == "timed_out" else ("", "", "")
    then = (f"inductor-debug rerun RUN {key}{longer}", *then) if key else then
    does, error = _ended(name, status), raised(data, name)
    return Answer(state, word, note, f"{does} ({error})" if does and error else does, then)


def sentence_of(
    run: Mapping[str, Any], verdict: str, contents: Iterable[Entry], stages: Iterable[Mapping[str, Any]]
) -> str:
    """The run in a sentence or two, for someone who was not there: what is wrong first.

    Args:
        run, stages: of ``summary.json``.
        verdict: of the run.
        contents: of the page.
    """
    entries = list(contents)
    subject = f"{run['model']} with {run['backend']} ({run['mode']}, {run['dtype']}, {run['device']})"
    if verdict == "not_established" and not any(entry.state in ("good", "told", "bad") for entry in entries):
        return f"Of {subject} no stage left a result, so nothing is established."
    wrong_first = sorted(entries, key=lambda entry: _WRONG_FIRST.index(entry.state))
    told_of: set[str] = set()  # stages that ended badly: one sentence of each
    parts = []
    for entry in wrong_first:
        if entry.does and not (entry.state == "bad" and entry.stage in told_of):
            parts.append(entry.does)
            told_of |= {entry.stage} if entry.state == "bad" else set()
    does = list(dict.fromkeys([*_untold(stages, entries), *parts]))
    open_ = [entry.title for entry in entries if entry.state == "unknown"]
    told = f"{subject} {_listed(does)}." if does else f"{subject} was looked at, and nothing was judged."
    return f"{told} Not answered: {' '.join(open_)}" if open_ else told


def _untold(stages: Iterable[Mapping[str, Any]], entries: Sequence[Entry]) -> list[str]:
    """Stages that ended badly, of which no section tells."""
    bad = {entry.stage for entry in entries if entry.state == "bad"}
    found = [(str(stage.get("name")), str(stage.get("status"))) for stage in stages]
    told = [_ended(name, status) for name, status in found if name not in bad]
    answered = {entry.stage for entry in entries if entry.does or entry.state != "bad"}
    failed = [name for name, status in found if status == "failed" and name not in answered]
    if failed:
        told += [f"fails in the stage{'s' * (len(failed) > 1)} {_listed(failed)}"]
    return [text for text in told if text]


def _ended(stage: str, status: str) -> str:
    """How a run ended in a stage; empty where it did not."""
    how = _ENDED.get(status)
    return f"{how} in the stage {stage}" if how else ""


def led_by(contents: Sequence[Entry], run: str) -> list[str]:
    """Commands to type next: those of the worst answers.

    Args:
        contents: of the page.
        run: what stands for ``RUN``.
    """
    bad = any(entry.state == "bad" for entry in contents)
    entries = [entry for entry in contents if entry.state in (("bad", "told") if bad else _ORDER)]
    asked = [command for entry in sorted(entries, key=lambda entry: _place(entry.state)) for command in entry.then]
    if not asked and not bad:
        ran = {entry.stage for entry in contents if not entry.empty}
        asked = [command for stage, command in _PASSED.items() if stage not in ran]
    return [command.replace(" RUN", f" {run}", 1) for command in dict.fromkeys(asked)][:_COMMANDS]


def is_empty(section: Any) -> bool:
    """Whether a section's data hold nothing."""
    if isinstance(section, dict):
        return all(is_empty(value) for value in section.values())
    return section in (None, [], "")


def _place(state: State) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def _listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
