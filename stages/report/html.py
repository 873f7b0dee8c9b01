"""What the report's pages are written with: templates, filters, style, script and content policy."""

import base64
import functools
import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from inductor_debug.stages.drawing import shorten
from inductor_debug.stages.formatting import counted, human_bytes, percent, place, times
from inductor_debug.stages.registry import declared

VERDICTS = {
    "passed": "Passed",
    "failed": "Failed",
    "crashed": "Crashed",
    "not_established": "Not established",
}
NUMBER = re.compile(r"-?(\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)")
_NUMERIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|-?inf", re.IGNORECASE)
_PURPOSES = {
    "repro": "List the scripts that show what failed",
    "minify": "Find the smallest program that shows it",
    "check": "Check what was captured against other rules or sizes, without compiling",
    "compare": "Compare a later result with this one",
    "show": "Show the run in a terminal",
    "list": "List the stored runs there",
    "profiles": "List the accelerator profiles",
}
"""Command → what it is for."""
_PACKAGES = re.compile(r"[^\s\"'(,:=]*/(?:site|dist)-packages/")
_SOURCE_MAP = re.compile(r"\n//# sourceMappingURL=.*")
_PAGE = Path(__file__).with_name("page")


def write_page(
    template: str, environment: jinja2.Environment, *variables: Mapping[str, Any], scripts: Sequence[Path] = ()
) -> str:
    """A page that needs nothing from outside. Every string in it is escaped.

    Its own content policy lets no script run but those that it brings, which add to a page that is whole without them.

    Args:
        template: a template that extends ``base.html``: its name in ``page``, or its path.
        environment: of :func:`environment_of`.
        variables: of the template: among them ``title``, ``verdict`` and ``sentence``.
        scripts: files that run after the page's own.
    """
    written = [_script(path) for path in (_PAGE / "page.js", *scripts)]
    style = (_PAGE / "page.css").read_text(encoding="utf-8")
    given = {key: value for part in variables for key, value in part.items()}
    given |= {"words": VERDICTS, "css": Markup(style), "policy": _policy(written)}
    return environment.get_template(template).render(given, scripts=[Markup(script) for script in written])


def _script(path: Path) -> str:
    """A script's text, without the name of a file that a debugger would load."""
    return _SOURCE_MAP.sub("", path.read_text(encoding="utf-8"))


def environment_of(
    excerpts: Iterable[Mapping[str, Any]] = (), kernels: Collection[tuple[str, str]] = (), *, address: str = "RUN"
) -> jinja2.Environment:
    """What templates are made with.

    Args:
        excerpts: of the model's source, to which lines are linked.
        kernels: graph and name of those of which the page has the source.
        address: what stands for ``RUN`` in a command.
    """
    lines = {f"{item['file']}:{item['first'] + number}" for item in excerpts
             for number in range(item["text"].count("\n") + 1)}  # fmt: skip
    environment = jinja2.Environment(autoescape=True, finalize=_finalized, undefined=jinja2.StrictUndefined,
                                     trim_blocks=True, lstrip_blocks=True,
                                     loader=jinja2.FunctionLoader(_source))  # fmt: skip
    named = {"link": lambda path: quote(str(path)), "for_run": lambda line: line.replace(" RUN", f" {address}", 1)}
    environment.filters.update(
        named,
        cell=cell,
        bytes=human_bytes,
        place=place,
        percent=percent,
        counted=counted,
        times=times,
        anchor=anchor,
        relative=relative,
        groupby_folder=_by_folder,
        purpose=purpose,
        heading=heading,
        short_in=shorten,
    )
    environment.tests.update(
        numeric=is_numeric, known_line=lambda value: value in lines, known_kernel=lambda value: value in kernels
    )
    return environment


def shortened(text: str) -> str:
    """A text without the folders of this machine: of installed packages, of the working directory, of the user."""
    if "/" not in text:
        return text
    for folder, instead in _folders(os.getcwd()):
        text = text.replace(folder, instead)
    return _PACKAGES.sub("", text) if "-packages/" in text else text


@functools.cache
def _folders(working: str) -> list[tuple[str, str]]:
    """Folder → what stands for it."""
    return [(f"{folder}/", instead) for folder, instead in ((working, ""), (str(Path.home()), "~/")) if folder != "/"]


def _finalized(value: Any) -> Any:
    """What stands on a page of a value; what is HTML already stays as it is."""
    return shortened(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_UNITS = {"gb_s": "GB/s", "gflop_s": "GFLOP/s", "us": "µs", "ms": "ms"}
"""End of a column's name → its unit."""


def heading(column: str) -> str:
    """A column's name as a table's head has it: ``time_us`` is ``time µs``."""
    unit = next((end for end in _UNITS if column == end or column.endswith(f"_{end}")), None)
    return column.replace("_", " ") if unit is None else (
        f"{column.removesuffix(unit).replace('_', ' ')}{_UNITS[unit]}")  # fmt: skip


def purpose(command: str) -> str:
    """What a proposed command is for; empty for one that needs no word."""
    words = shlex.split(command)
    name = words[1] if len(words) > 1 and words[0] == "inductor-debug" else ""
    if name == "analyze":
        known = {key: question.text for stage in declared().values() for key, question in stage.questions.items()}
        asked = known.get(words[-1], "")
        return f"{asked[:1].upper()}{asked[1:]}".removesuffix("?")
    if name == "repro":
        which = "smallest script" if any(word.startswith("minified-") for word in words) else "script"
        return f"Run the {which} that shows it" if "--run" in words else _PURPOSES[name]
    if name == "rerun":
        stages = [word.partition("=")[2] for word in words if word.startswith(("stages=", "+stages="))]
        if stages:
            names = stages[0].strip("[]").removesuffix(",report").split(",")
            return f"Run it again, with the {'stage' if len(names) == 1 else 'stages'} {', '.join(names)}"
        changed = [word for word in words[3:] if "=" in word]
        without = [word.partition("=")[0] for word in changed if word.endswith("=null")]
        if changed and len(without) == len(changed):
            return f"Run it again, with {' and '.join(without)} not set"
        return f"Run it again, with {' and '.join(changed)}" if changed else "Run it again as it was"
    return _PURPOSES.get(name, "")


def _source(name: str) -> str:
    """A template: a section's by its path, the page and its macros by their names."""
    return (_PAGE / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """A content policy under which these scripts run and no other, and nothing is loaded."""
    digests = [base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def anchor(value: Any) -> str:
    """An element's id for a text of any kind."""
    return f"at-{hashlib.sha256(str(value).encode()).hexdigest()[:12]}"


def relative(file: Any) -> str:
    """The link from the page to a file of the run."""
    return quote(f"../{file}")


def _by_folder(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Files by the first folder of their paths."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.partition("/")[0] if "/" in name else ".", []).append(name)
    return sorted(folders.items())


def _figure(value: float) -> str:
    """Five digits; of a large number all before the point."""
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e12 else f"{value:.5g}"


def is_numeric(value: Any) -> bool:
    """Whether a table's cell holds a number, as one or as text."""
    if isinstance(value, str):
        return _NUMERIC.fullmatch(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """A table's cell: floats to five digits, what is missing as a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _figure(value)
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return _figure(float(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return str(value)
