"""The one reader of stored files: what is beyond its limits, or of another shape, is one message."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inductor_debug.models.errors import ConfigurationError, DamagedError
from inductor_debug.models.shapes import OMITTED, STORED, Mismatch, Number, reader
from inductor_debug.models.stored import (
    Column,
    parse_csv,
    parse_json,
    parse_yaml,
    read_bytes,
    read_own_yaml,
    whole_lines,
)
from inductor_debug.models.visible import visible, visible_lines
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.graphs.symbolic_sizes import readable, values

FILE = Path("run/summary.json")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[1, 2", "not JSON"),
        (b"[" * 100_000, "nested more than 100 deep"),
        (b"[" * 101 + b"]" * 101, "nested more than 100 deep"),
        (b'{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b"1e999", "too large"),
        (b"9" * 41, "a number of 41 digits"),
        (b'"\xff"', "byte 1 is not UTF-8"),
    ],
)
def test_json_that_is_none_or_too_much_is_damage(content: bytes, told: str) -> None:
    with pytest.raises(DamagedError, match=r"run/summary\.json: ") as caught:
        parse_json(content, FILE)
    assert told in str(caught.value)


def test_json_within_the_limits_is_read_as_it_is() -> None:
    assert parse_json(b"[" * 100 + b"]" * 100, FILE)
    assert parse_json(b'{"a": [1, 2.5, "nan", null, true, "\\ud83d\\ude00"]}', FILE) == {
        "a": [1, 2.5, "nan", None, True, "\U0001f600"]
    }
    assert parse_json(b'"\\ud800"', FILE) == "\\ud800"  # half a pair, which no file could hold, is shown


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: Number | None = None
    inner: "list[Stage]" = field(default_factory=list)
    for_: str = ""
    role: str = field(default="", metadata=STORED)
    note: str | None = field(default=None, metadata=OMITTED)


FINE = {"name": "a", "role": ""}


@dataclass(frozen=True)
class Summary:
    stages: list[Stage]
    interval: tuple[float, float] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    last: Stage | None = field(default=None, metadata=OMITTED)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "its content is a mapping without 'stages'; valid: one with it"),
        ({"stages": {}}, "stages is a mapping; valid: a list"),
        ({"stages": [FINE, FINE | {"name": 5}]}, "stages[1].name is 5; valid: text"),
        (
            {"stages": [{"name": "a", "role": "", "seconds": "long"}]},
            "stages[0].seconds is 'long'; valid: a number or nan or inf",
        ),
        ({"stages": [FINE | {"seconds": True}]}, "stages[0].seconds is True"),
        (
            {"stages": [{"name": "a", "role": "", "inner": [{"name": None, "role": ""}]}]},
            "stages[0].inner[0].name is None; valid: text",
        ),
        ({"stages": [FINE | {"for": 5}]}, "stages[0].for is 5; valid: text"),
        ({"stages": [{"name": "a"}]}, "stages[0] is a mapping without 'role'; valid: one with it"),
        ({"stages": [], "last": {"name": "a"}}, "last is a mapping without 'role'; valid: one with it"),
        ({"stages": [], "last": 5}, "last is 5; valid: a mapping or null"),
        ({"stages": [], "interval": [1]}, "interval is a list of 1; valid: a list of 2"),
        ({"stages": [], "counts": {"a": 1.5}}, "counts.a is 1.5; valid: a whole number"),
    ],
)
def test_the_place_that_is_of_another_shape_is_named(content: Any, told: str) -> None:
    import json

    with pytest.raises(DamagedError) as caught:
        parse_json(json.dumps(content).encode(), FILE, Summary)
    assert told in str(caught.value)


@dataclass(frozen=True)
class Defaults:
    """All kinds of defaults, the order of its keys in a file another."""

    first: int
    second: str = "two"
    third: list[str] = field(default_factory=list)
    fourth: list[int | str] | None = None


@dataclass
class Sorted:
    """Has something to do once its fields are set."""

    items: list[int]

    def __post_init__(self) -> None:
        self.items.sort()


def test_a_record_is_what_its_own_init_makes() -> None:
    one, other = reader(Defaults)({"fourth": [1, "n"], "first": 1}), reader(Defaults)({"first": 1})
    assert one == Defaults(1, fourth=[1, "n"]) and other == Defaults(1)
    assert list(vars(one)) == list(vars(Defaults(1)))
    assert one.third == [] and one.third is not other.third
    given = [2, 1]
    assert reader(Sorted)({"items": given}) == Sorted([1, 2]) and given == [2, 1]


def test_whole_lists_of_one_kind_are_checked_item_by_item() -> None:
    for content, place in (([1, "n", 2.5], "fourth[2]"), ([True], "fourth[0]")):
        with pytest.raises(Mismatch) as raised:
            reader(Defaults)({"first": 1, "fourth": content})
        assert raised.value.place == place


def test_a_record_is_read_as_its_dataclass_and_written_as_it_was() -> None:
    inner = {"name": "b", "seconds": None, "inner": [], "for": "", "role": "", "note": "c"}
    plain = {"stages": [{"name": "a", "seconds": "inf", "inner": [inner], "for": "b", "role": "r"}],
             "interval": [1, 2.5], "counts": {"x": 1}}  # fmt: skip
    found = parse_json(encode("x.json", plain | {"other": 1}), FILE, Summary)
    assert found == Summary([Stage("a", "inf", [Stage("b", note="c")], "b", "r")], (1, 2.5), {"x": 1})
    assert encode("x.json", found) == encode("x.json", plain)
    assert parse_json(b'{"stages": []}', FILE, Summary) == Summary([])


@pytest.mark.parametrize("content", [{"stages": [], "more": 1}, {"stages": [FINE | {"inner": [FINE | {"more": 1}]}]}])
def test_a_key_that_no_field_has_is_refused_where_that_is_asked_for(content: Any) -> None:
    assert reader(Summary)(content)
    with pytest.raises(Mismatch, match="a mapping with 'more', valid: the keys "):
        reader(Summary, exact=True)(content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: &x 1\nb: *x\n", ":1: got an anchor or alias"),
        (b"a: 1\nb: !!python/object/apply:os.getcwd []\n", ":2: got a tag"),
        (b"a: " + b"[" * 20_000, "nesting of more than 100 levels"),
        (b"{a: 1, a: 2}", "the key 'a' is there twice"),
        (b"a: [", "not YAML"),
    ],
)
def test_stored_yaml_has_no_alias_no_tag_and_no_depth(content: bytes, told: str) -> None:
    with pytest.raises(DamagedError) as caught:
        parse_yaml(content, FILE)
    assert told in str(caught.value)
    read = parse_yaml(b"a: ${oc.env:HOME}\nb: 1e-3\nc: 2027-01-31\nd: null\n", FILE)
    assert read == {"a": "${oc.env:HOME}", "b": 0.001, "c": "2027-01-31", "d": None}


def test_the_users_yaml_may_repeat_by_aliases_but_not_without_end(tmp_path: Path) -> None:
    lines = [f"a0: &a0 [{', '.join('x' * 9)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    file = tmp_path / "chip.yaml"
    file.write_text("\n".join(lines[:4]))
    assert read_own_yaml(file) == file.read_bytes()
    for content in ("\n".join(lines), "a: &a [*a]", "a: " + "[" * 200):
        file.write_text(content)
        with pytest.raises(ConfigurationError, match=r"chip\.yaml"):
            read_own_yaml(file)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a,b\n1\n", "row 2 has 1 cells; valid: 2"),
        (b"a,a\n1,2\n", "has twice the column a"),
        (b"b\n1\n", "lacks the column a"),
        (b"a,b\n[[[,2\n", "row 2 has '[[[' as a"),
        (b'a,b\n"1,2\n', "not CSV"),
    ],
)
def test_a_table_is_whole_or_damaged(content: bytes, told: str) -> None:
    import re

    columns = {"a": Column(re.compile(r"\d*")), "c": Column(re.compile(r"\d*"), needed=False)}
    with pytest.raises(DamagedError) as caught:
        parse_csv(content, FILE, columns)
    assert told in str(caught.value)
    assert parse_csv(b'a,b\n1,"x\ny"\n', FILE, columns) == [{"a": "1", "b": "x\ny"}]


def test_regular_files_alone_are_opened_and_no_link_leads_out(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "inner").mkdir(parents=True)
    outside.write_text("secret")
    (run / "inner/own").write_text("own")
    os.mkfifo(run / "fifo")
    for name, target in (("link", "inner/own"), ("out", "../outside"), ("device", "/dev/zero"), ("again", "again")):
        (run / name).symlink_to(target)
    with (run / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert read_bytes(run / "link", root=run) == b"own"
    assert read_bytes(run / "out") == b"secret"  # no root: a user's own file
    for name, told in (("fifo", "is a FIFO"), ("out", "outside of"), ("device", "outside of"), ("again", "be read"),
                       ("inner", "can't be read"), ("sparse", "has 1,099,511,627,776 bytes")):  # fmt: skip
        with pytest.raises(DamagedError) as caught:
            read_bytes(run / name, root=run)
        assert told in str(caught.value)
    with pytest.raises(DamagedError, match="is a device"):
        read_bytes(Path("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        read_bytes(run / "nothing")


def test_what_steers_a_terminal_is_seen() -> None:
    assert visible("é 漢 x\x1b[31m\n\t\x07\x9b\u202e\u200b\x7f\ud800") == (
        "é 漢 x\\u001b[31m\\n\\t\\u0007\\u009b\\u202e\\u200b\\u007f\\ud800"
    )
    assert visible_lines("a\nb\r") == "a\nb\\r"
    every = visible("".join(map(chr, range(sys.maxunicode + 1))))
    assert every.isprintable()


def test_an_expression_that_others_wrote_can_not_grow_without_end() -> None:
    assert readable("2*s0 + 1") and readable("Max(1, (s0//2)**2)") and readable("no expression at all")
    for text in (
        "64**1000000000",
        "(((s0**7)**7)**7)**7",
        "-" * 100_000 + "s0",
        "*".join(["s0"] * 100),
        "-" * 500 + "s",
    ):
        assert not readable(text)
    assert values("s0", {"s0": {"min": 2, "max": 2**64}}) is None


def test_torn_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "known.jsonl").write_bytes(b'{"program": "a"}\n{"progr\n[1]\n{"program": "b"}\n{"program": "c\xff')
    assert list(whole_lines(tmp_path / "known.jsonl")) == [{"program": "a"}, {"program": "b"}]
