"""Savepoint statements as servers write them, and which names are one."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.savepoints import SavepointText, last_named, read_savepoint, savepoint_key, savepoint_text
from tests.kit import bodies

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
    with pytest.raises(ProtocolError, match="names no savepoint"):
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
    """As servers of 10.5, 10.11 and 11.8 found them equal or not (tests/integration/test_savepoints.py asks again)."""
    assert (savepoint_key(one, accents=False) == savepoint_key(other, accents=False)) is before_11_5
    assert (savepoint_key(one, accents=True) == savepoint_key(other, accents=True)) is since_11_5


def test_a_routine_has_savepoints_of_its_own() -> None:
    """A caller's ROLLBACK TO means the caller's savepoint, as far as the two have different sessions."""
    caller, routine = ("caller",), ("routine",)

    def meant(rollback: tuple[object, ...], *newest_first: tuple[object, ...]) -> int | None:
        savepoints = [SavepointText("a", rolls_back=False, session=session) for session in newest_first]
        return last_named(SavepointText("A", rolls_back=True, session=rollback), savepoints, accents=True)

    assert meant(caller, routine, routine, caller) == 2
    assert meant(routine, routine, routine, caller) == 0
    assert meant(caller, routine) == 0  # the session changed meanwhile
    assert meant(caller) is None
