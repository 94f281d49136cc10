from __future__ import annotations

import pytest

from replica.commands.dump.text import visible
from replica.commands.tail.lines import SHOWN_CHARACTERS, Colours, RowLines, TableLines, values, wanted
from replica.rows.scan import records as r

TABLE = TableLines("d.t", ("id", "name", "note"), (0,))
KEYLESS = TableLines("d.t", ("id", "name", "note"), ())
PLAIN = RowLines(Colours(on=False))


def side(**columns: str) -> dict[int, str]:
    return {TABLE.columns.index(name): value for name, value in columns.items()}


def test_sides_and_values_are_taken_apart() -> None:
    text = "\x1d0\x1e1\x1f1\x1e'a=b'\x1d\x1d2\x1eNULL"
    assert values(memoryview(text.encode())) == [{0: "1", 1: "'a=b'"}, {}, {2: "NULL"}]


@pytest.mark.parametrize(
    ("op", "sides", "line"),
    [
        (r.OP_INSERT, [side(id="1", name="'a'", note="NULL")], "  insert  d.t   id=1  name='a'  note=NULL"),
        (r.OP_DELETE, [side(id="1")], "  delete  d.t   id=1"),
        (r.OP_UPDATE, [side(id="1", name="'a'"), side(id="1", name="'b'")], "  update  d.t   id=1  name 'a' → 'b'"),
        (r.OP_UPDATE, [side(id="1"), side(name="'b'")], "  update  d.t   id=1  name → 'b'"),
        (r.OP_UPDATE, [side(id="1", name="'a'"), side(id="2", name="'a'")], "  update  d.t   id=1  id 1 → 2"),
        (r.OP_UPDATE, [side(id="1"), side(id="1")], "  update  d.t   id=1  (no shown column was changed)"),
    ],
)
def test_a_row(op: int, sides: list[dict[int, str]], line: str) -> None:
    assert PLAIN.line(TABLE, op, sides, width=4) == line


def test_without_a_key_the_unchanged_columns_tell_which_row() -> None:
    sides = [side(id="1", name="'a'", note="'n'"), side(id="1", name="'b'", note="'n'")]
    assert PLAIN.line(KEYLESS, r.OP_UPDATE, sides, width=3) == "  update  d.t  id=1  note='n'  name 'a' → 'b'"


def test_long_values_are_cut_and_whole_on_demand() -> None:
    value = "'" + "x" * 500 + "'"
    line = PLAIN.line(TABLE, r.OP_INSERT, [side(id="1", name=value)], width=3)
    assert f"name='{'x' * (SHOWN_CHARACTERS - 1)}… 442 more" in line
    assert value in RowLines(Colours(on=False), full=True).line(TABLE, r.OP_INSERT, [side(name=value)], width=3)


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028"])
def test_nothing_commands_the_terminal_or_turns_text_around(character: str) -> None:
    line = PLAIN.line(TABLE, r.OP_INSERT, [side(name=f"'a{character}b'")], width=3)
    assert character not in line
    assert f"\\u{ord(character):04x}" in line
    assert visible("Grüße, 日本") == "Grüße, 日本"


def test_colours_say_nothing_that_words_do_not() -> None:
    sides = [side(id="1", name="'a'", note="NULL"), side(id="1", name="'b'", note="NULL")]
    coloured = RowLines(Colours(on=True)).line(TABLE, r.OP_UPDATE, sides, width=4)
    assert "\x1b[" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", *(f"\x1b[{n}m" for n in range(30, 48))):
        coloured = coloured.replace(code, "")
    assert coloured == PLAIN.line(TABLE, r.OP_UPDATE, sides, width=4)


@pytest.mark.parametrize(
    ("when", "environment", "terminal", "on"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {}, True, False),
    ],
)
def test_when_there_are_colours(when: str, environment: dict[str, str], *, terminal: bool, on: bool) -> None:
    assert wanted(when, environment, terminal=terminal) is on  # type: ignore[arg-type]
