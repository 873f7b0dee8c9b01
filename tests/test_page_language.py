"""README, CONTRIBUTING, tutorial and how-to pages are short: sentences of 30 words, paragraphs of five sentences."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted(DOCS.glob("tutorial/*.md")),
          *sorted(DOCS.glob("how-to/*.md"))]  # fmt: skip
WORDS, SENTENCES, LINES = 30, 5, 150
_ABBREVIATED = re.compile(r"\b(e\.g|i\.e|vs|etc|No|Fig)\.")


def paragraphs(text: str) -> Iterator[str]:
    """Each paragraph, list item, heading and table cell, with code as one word."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline":
            parts = (("X" if part.type == "code_inline" else part.content or " ") for part in token.children or ())
            yield "".join(parts)


def sentences(paragraph: str) -> list[str]:
    """Its sentences; a colon or a semicolon ends none."""
    plain = _ABBREVIATED.sub(r"\1", paragraph)
    return [part for part in re.split(r"(?<=[.!?])[)\"']?\s+(?=[A-ZX`\"'(0-9])", plain) if part.strip()]


def words(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_easy_to_read(page: Path) -> None:
    found = list(paragraphs(page.read_text(encoding="utf-8")))
    long = [(words(each), each) for paragraph in found for each in sentences(paragraph) if words(each) > WORDS]
    assert not long, f"sentences of more than {WORDS} words"
    assert not [paragraph for paragraph in found if len(sentences(paragraph)) > SENTENCES], "long paragraphs"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES


def test_what_counts_as_a_sentence() -> None:
    text = "One is `a.b c d`, i.e. code. Two has\na [link to it](x.md). `key` begins three."
    (paragraph,) = paragraphs(text)
    assert [words(each) for each in sentences(paragraph)] == [5, 6, 3]
    assert words(sentences("a " * 31 + ".")[0]) == 31
