"""The commands of README and docs, and the files that these pages have a reader write.

A command is a line of an ``sh`` block, a step of a CI's YAML, or a command with its arguments within a sentence. A
comment behind it may say ``exit code N``: else it ends with 0. A file is a block that begins with ``# PATH``, or one of
YAML below a paragraph that names ``PATH.yaml``.
"""

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*/*.md"))]
PIPELINES = (["python", "-m", "pipeline"], ["inductor-debug", "run"])
STORED = {"RUN", "RUN2", "SWEEP", "A", "B", "latest", "outputs/ci", "outputs/today", "outputs/accepted"}
"""Words that stand for a stored run, or several."""


@dataclass(frozen=True)
class Command:
    """One line to type.

    Attributes:
        page: relative to the project.
        text: without its comment.
        code: the exit code that it is to have.
        block: number of the block on its page, from 0.
    """

    page: str
    text: str
    code: int
    block: int

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables in front of the command."""
        return dict(word.split("=", 1) for word in itertools.takewhile(_is_variable, shlex.split(self.text)))

    @property
    def words(self) -> list[str]:
        return list(itertools.dropwhile(_is_variable, shlex.split(self.text)))

    @property
    def overrides(self) -> list[str] | None:
        """Of a run of the pipeline what stands behind its name; None of any other command."""
        for name in PIPELINES:
            if self.words[: len(name)] == name:
                return self.words[len(name) :]
        return None

    def jobs(self) -> list[list[str]]:
        """Overrides of a run, or of a sweep each of its values, one at a time."""
        words = [word for word in self.overrides or [] if word not in ("--multirun", "--cfg", "job")]
        swept = [word for word in words if re.search(r",(?![^\[]*\])", word.partition("=")[2])]
        plain = [word for word in words if word not in swept]
        values = [f"{key}={value}" for key, _, listed in (word.partition("=") for word in swept)
                  for value in listed.split(",")]  # fmt: skip
        return [[*plain, value] for value in values] or [plain]


def _is_variable(word: str) -> bool:
    return bool(re.match(r"[A-Z_]+=", word))


def commands(page: Path) -> list[Command]:
    """The commands of a page, in order."""
    found = []
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    blocks = [token.content for token in tokens if token.type == "fence" and token.info.strip() == "sh"]
    for block, content in enumerate(blocks):
        for line in re.sub(r"\\\n\s*", "", content).splitlines():
            text, _, comment = line.partition(" #")
            if text.strip() and not text.startswith("#"):
                code = re.search(r"exit code (\d+)", comment)
                found.append(Command(str(page.relative_to(ROOT)), text.strip(), int(code[1]) if code else 0, block))
    return found


def within_sentences(page: Path) -> list[Command]:
    """Commands that a page names within a sentence or a table, without placeholders but :data:`STORED`.

    Those of the vendor's package have a test of their own (:mod:`test_vendor_package`)."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    texts = [part.content.strip() for token in tokens for part in token.children or () if part.type == "code_inline"]
    steps = [token.content for token in tokens if token.type == "fence" and token.info.strip() == "yaml"]
    texts += [text.strip() for step in steps for text in re.findall(r"^- run: (.*?)(?: \|\| .*)?$", step, re.MULTILINE)]
    texts = [text.partition(" | ")[0] for text in texts]
    found = [text for text in texts if re.match(r"(python -m pipeline|inductor-debug( -\w)? \w+) ", f"{text} ")]
    placeholder = re.compile(r"=[A-Z]+\b|\b[A-Z]+=|…|\.\.\.|NAME|FORMAT|FILE|COMMAND|=acme\b|^inductor-debug \w+$")
    return [Command(str(page.relative_to(ROOT)), text, 0, -1) for text in found if not placeholder.search(text)]


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows below ``folder``."""
    named = ""
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "inline":
            paths = [part.content for part in token.children or () if part.type == "code_inline"]
            named = next((path for path in reversed(paths) if path.endswith(".yaml")), named)
        if token.type != "fence":
            continue
        path = re.match(r"# ([\w/]+\.(?:py|yaml))\n", token.content)
        name = path[1] if path else named if token.info.strip() == "yaml" else ""
        if name and not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(token.content, encoding="utf-8")


COMMANDS = [command for page in PAGES for command in commands(page)]
