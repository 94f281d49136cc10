"""Savepoint statements as servers write them, and which names are one."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import EventType
from replica.protocol.groups.savepoints import (
    SavepointText,
    inside_statement,
    last_named,
    read_savepoint,
    savepoint_key,
    savepoint_text,
)
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map

STATEMENTS = [
    (b"SAVEPOINT `a`", ("a", False)),
    (b"ROLLBACK TO `a`", ("a", True)),
    (b"SAVEPOINT a", ("a", False)),
    (b'ROLLBACK TO "A b"', ("A b", True)),
    (b'SAVEPOINT "a""b`c"', ('a"b`c', False)),
    (b'ROLLBACK TO `a``b"c`', ('a`b"c', True)),
    ("SAVEPOINT `é`".encode(), ("é", False)),
    (b"SAVEPOINT ` a\n`", (" a\n", False)),
    (b"rollback work to savepoint x", ("x", True)),
    (b"ROLLBACK TO savepoint", ("savepoint", True)),
    (b"ROLLBACK TO `SAVEPOINT x`", ("SAVEPOINT x", True)),
    (b"SAVEPOINT ROLLBACK", ("ROLLBACK", False)),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS)
def test_statements(text: bytes, expected: tuple[str, bool]) -> None:
    assert savepoint_text(text) == SavepointText(*expected)


@pytest.mark.parametrize(
    "text", [b"ROLLBACK", b"COMMIT", b"RELEASE SAVEPOINT `a`", b"SAVEPOINT", b"SAVEPOINT `a` `b`", b"SAVEPOINT ``", b""]
)
def test_other_statements(text: bytes) -> None:
    assert savepoint_text(text) is None


def test_an_event_has_the_session_it_ran_in() -> None:
    status = bytes([1]) + (7).to_bytes(8, "little") + bytes([4]) + bytes([45, 0, 8, 0, 33, 0])
    event = memoryview(bytes(19) + bodies.query(b"SAVEPOINT `a`", status=status))
    assert read_savepoint(event) == SavepointText("a", rolls_back=False, session=((45, 8, 33), 7))
    with pytest.raises(ProtocolError, match="has no savepoint name"):
        read_savepoint(memoryview(bytes(19) + bodies.query(b"SAVEPOINT")))


@pytest.mark.parametrize(
    ("one", "other", "before_11_5", "since_11_5"),
    [
        ("A", "a", True, True),
        ("É", "é", True, True),
        ("é", "e", True, False),
        ("ß", "s", True, False),
        ("ß", "ss", False, False),
        ("Å", "a", True, False),
        ("Σ", "ς", True, True),
        ("\u0451", "\u0435", True, False),
        ("\u0131", "i", True, True),
        ("a ", "a", False, False),
        ("ﬁ", "fi", False, False),
        ("ø", "o", False, False),
    ],
)
def test_which_names_are_one(one: str, other: str, *, before_11_5: bool, since_11_5: bool) -> None:
    """As servers of 10.5, 10.11 and 11.8 compare them (tests/integration/relay_log/test_savepoints.py asks again)."""
    assert (savepoint_key(one, accents=False) == savepoint_key(other, accents=False)) is before_11_5
    assert (savepoint_key(one, accents=True) == savepoint_key(other, accents=True)) is since_11_5


def test_a_routine_has_savepoints_of_its_own() -> None:
    """A caller rolls back to its own savepoint, if the later one was set in a statement, by another session state."""
    caller, routine = ("caller",), ("routine",)

    def meant(
        rollback: tuple[object, ...], *newest_first: tuple[object, ...], inside: frozenset[int] = frozenset()
    ) -> int | None:
        savepoints = [SavepointText("a", rolls_back=False, session=session) for session in newest_first]
        text = SavepointText("A", rolls_back=True, session=rollback)
        return last_named(text, savepoints, accents=True, inside=inside.__contains__)

    both = frozenset({0, 1})
    assert meant(caller, routine, routine, caller, inside=both) == 2
    assert meant(caller, routine, routine, caller) == 0  # a procedure has no savepoints of its own
    assert meant(caller, routine, routine, caller, inside=frozenset({0})) == 0
    assert meant(routine, routine, routine, caller, inside=both) == 0
    assert meant(caller, routine, inside=both) == 0  # the session changed meanwhile
    assert meant(caller, inside=both) is None


INT = Column("id", 3)


def events(*kinds: str) -> tuple[memoryview, int]:
    """A stream of savepoints (S, R), table maps (by letter) and rows (r; ! ends the statement); where the last S is."""
    stream, at = Primary(), 0
    for kind in kinds:
        match kind:
            case "S":
                at = stream.query(b"SAVEPOINT `a`")
            case "R":
                stream.query(b"ROLLBACK TO `a`")
            case "r" | "r!":
                stream.event(INSERT, rows(1, 1, image([bytes(4)]), flags=int(kind == "r!")))
            case _:
                stream.event(EventType.TABLE_MAP, table_map(ord(kind), [INT]))
    stream.xid()
    return memoryview(bytes(stream)), at


@pytest.mark.parametrize(
    ("kinds", "inside"),
    [
        ("S t r! S u r! R", False),  # statements of a session or a procedure
        ("S t u r r! S t u r r! R", True),  # a trigger of t, or a function that changes both
        ("S t r! t u r r! S u t r r! R", False),
        ("S t r! S u r R r!", True),  # ROLLBACK TO while a statement runs
        ("S t r! S t r! R", False),
        ("S t r! S", False),
        ("S t u r! t r! S t u r! R", False),
    ],
)
def test_a_savepoint_inside_of_a_statement(kinds: str, *, inside: bool) -> None:
    data, at = events(*kinds.split())
    assert inside_statement(data, 0, at) is inside
