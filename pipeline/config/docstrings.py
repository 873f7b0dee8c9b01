"""What docstrings say of a class and of each of its fields, as Markdown.

A field is described in the section ``Attributes:``. Several may share a line, as in ``first, second: as the IR names
them.``, and a sentence may open with another one: ``source: where it was published. version: of that source.``
"""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Collection, Iterable
from typing import Any

PACKAGE = "inductor_debug"
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$", re.MULTILINE)
_NAME = r"`{0,2}\w+`{0,2}"
_ENTRY = re.compile(rf"(?:^|(?<=[.;:,] ))({_NAME}(?:(?:, | and ){_NAME})*): ")
SEE = re.compile(r"see :(?:class|func|mod):`~?([\w.]+)`")
_ROLE = re.compile(r":\w+:`([^`]+)`")
_CODE = re.compile(r"``(.+?)``", re.DOTALL)


class UndescribedError(Exception):
    """Something that a page of the reference has to tell is told by no docstring."""


def described(kind: type) -> dict[str, str]:
    """Field → what its docstring, or one of a base class, says of it; a field that is not described is left out.

    A class that says ``see :class:`other.Class``` takes from that one what it does not say itself.
    """
    names = {item.name for item in dataclasses.fields(kind)}
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__[:-1]):
        text = _own(cls)
        for referred in SEE.findall(text):
            other = resolved(referred)
            if isinstance(other, type) and dataclasses.is_dataclass(other):
                found |= {name: said for name, said in described(other).items() if name in names}
        found |= entries(text, names)
    return {name: found[name] for name in names if name in found}


def arguments(function: Any) -> dict[str, str]:
    """Argument → what the section ``Args:`` of a function says of it."""
    return entries(inspect.getdoc(function) or "", set(inspect.signature(function).parameters), section="Args")


def summary(thing: Any) -> str:
    """What a docstring says before its sections, in one line; "" where there is none."""
    text = _SECTION.split(_own(thing) if isinstance(thing, type) else inspect.getdoc(thing) or "")[0]
    return " ".join(text.partition("::\n\n")[0].split())


def without_see(text: str) -> str:
    """A summary without what points to another module of the code."""
    text = re.sub(r"[:,]? ?\bsee (:\w+:`[^`]+`|``[\w.]+``)(?=[.;,]|$)", "", text)
    return text if text.endswith((".", "?")) or not text else f"{text}."


def entries(text: str, names: Collection[str], section: str = "Attributes") -> dict[str, str]:
    """Name → its description, of those ``names`` that a docstring describes."""
    head, _, rest = text.partition(f"{section}:\n")
    found: dict[str, str] = {}
    for paragraph in [" ".join(head.split()), *_paragraphs(rest)]:
        found |= _split(paragraph, names)
    return found


def markdown(text: str, none: str = "`null`") -> str:
    """A docstring's inline markup as Markdown, on one line.

    Args:
        text: as a docstring has it.
        none: what a reader of the page calls None.
    """
    text = re.sub(r"(?<!`)\bNone\b(?!`)", none.replace("`", "``"), text)
    shown = _CODE.sub(lambda match: _kept(match[1]), _ROLE.sub(lambda match: _kept(_short(match[1])), text))
    parts = re.split(r"(`[^`]*`)", " ".join(shown.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]\\|])", r"\\\1", part) for part in parts)


def cell(text: str, none: str = "`null`") -> str:
    """The same, for a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", markdown(text, none))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown of cells that are Markdown."""
    columns = list(header)
    lines = [columns, ["---"] * len(columns), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def sentence(text: str) -> str:
    """A description as a sentence: with a capital, where it opens with a word, and a full stop."""
    text = text.strip()
    text = text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,:;']", text) else text
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."


def _own(cls: type) -> str:
    """The docstring of the class itself; "" for one that dataclasses made of the signature."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def _paragraphs(section: str) -> list[str]:
    """The entries of a section, each on one line."""
    found: list[str] = []
    depth = None
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        depth = indent if depth is None else depth
        if line.strip() and (indent < depth or _SECTION.match(line.strip())):
            break
        if line.strip() and indent == depth:
            found.append(line.strip())
        elif line.strip():
            found[-1] += f" {line.strip()}"
    return found


def _split(paragraph: str, names: Collection[str]) -> dict[str, str]:
    opened = []
    for match in _ENTRY.finditer(paragraph):
        said = re.split(", | and ", match[1].replace("`", ""))
        if set(said) <= set(names):
            opened.append((match, said))
    ends = [*(match.start() for match, _ in opened), len(paragraph)][1:]
    return {
        name: paragraph[match.end() : end].strip().rstrip(";,")
        for (match, said), end in zip(opened, ends, strict=True)
        for name in said
    }


def resolved(path: str) -> Any:
    """What a dotted path of a docstring names; None where it names nothing that can be imported."""
    parts = path.removeprefix(f"{PACKAGE}.").split(".")
    for depth in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join([PACKAGE, *parts[:depth]]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            found = getattr(found, part, None)
        return found
    return None


def _short(target: str) -> str:
    return target.rpartition(".")[2] if target.startswith("~") else target


def _kept(code: str) -> str:
    return f"`{' '.join(code.split())}`"
