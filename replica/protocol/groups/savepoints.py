"""SAVEPOINT and ROLLBACK TO inside a transaction, which decide whether rows were undone before the commit.

Servers write both statements themselves (`SAVEPOINT ` or `ROLLBACK TO ` and the quoted name, in UTF-8), whatever the
client sent. RELEASE SAVEPOINT is not written. ROLLBACK TO is written only if the transaction touched something that
cannot be rolled back, such as a temporary table. Otherwise the server removes the rows from its binlog cache.

The rule: the rows between a ROLLBACK TO and the last savepoint of its name do not exist. No row between the two
survives, because rows of non-transactional tables are in groups of their own.

A trigger or function has its own savepoints, which end with it. The binlog does not show where the routine ends. If it
sets a savepoint of a name that its caller has set too, a later ROLLBACK TO of the caller means the caller's savepoint.
This module assumes that case if two conditions hold: the routine's savepoint was set inside of a statement
(`inside_statement`), and its character sets or SQL mode differ from those of the ROLLBACK TO.

Sources: MariaDB 10.11.18, sql/log.cc, binlog_savepoint_set and binlog_savepoint_rollback; sql/transaction.cc,
find_savepoint; measured on 10.5, 10.11 and 11.8 (tests/integration/relay_log/test_savepoints.py).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.constants import HEADER_LENGTH, EventType
from replica.protocol.events.statement_events import read_status_vars
from replica.protocol.header import parse_header
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TEXT: Final = re.compile(
    rb"\s*(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT(?=\s+\S))?)\s+"
    rb"(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([^\s`\"]+))\s*",
    re.IGNORECASE | re.DOTALL,
)
_ROWS: Final = frozenset(kind for kind in EventType if kind.has_rows)
_NEXT: Final = frozenset({EventType.QUERY, EventType.XID, EventType.XA_PREPARE})
_UNQUOTED: Final = "`", '"', ""
"""Quotation mark of each of the three forms of a name. A doubled mark inside the name stands for one."""


class SavepointText(NamedTuple):
    """A SAVEPOINT or ROLLBACK TO statement. `session` holds the character sets and SQL mode that it ran with."""

    name: str
    rolls_back: bool
    session: tuple[object, ...] = ()


def savepoint_text(query: bytes) -> SavepointText | None:
    """Parse a SAVEPOINT or ROLLBACK TO statement; return None for any other statement."""
    found = _TEXT.fullmatch(query)
    if found is None:
        return None
    form = next(number for number in range(3) if found[number + 2] is not None)
    name = found[form + 2].decode("utf-8", "surrogateescape")
    mark = _UNQUOTED[form]
    rolls_back = found[1][:1] in b"rR"
    return SavepointText(name.replace(mark * 2, mark) if mark else name, rolls_back)


def read_savepoint(event: memoryview) -> SavepointText:
    """Parse a QUERY event, without its checksum, that begins like SAVEPOINT or ROLLBACK TO.

    Raises:
        ProtocolError: the event holds another statement.
    """
    body = Cursor(event, HEADER_LENGTH)
    body.skip(8)
    database, _, status_length = body.u8(), body.u16(), body.u16()
    with body.restrict(status_length):
        status = read_status_vars(body)
    body.skip(database + 1)
    query = bytes(body.rest())
    found = savepoint_text(query)
    if found is None:
        raise ProtocolError(f"a transaction holds the statement {query[:80]!r}, which has no savepoint name")
    return found._replace(session=(status.charset, status.sql_mode))


def savepoint_key(name: str, *, accents: bool) -> str:
    """Return a key that is equal for equal savepoint names.

    Args:
        name: name of a savepoint.
        accents: whether accents count. They do from MariaDB 11.5 on (utf8mb3_general1400_as_ci). Older servers and
            MySQL compare by utf8mb3_general_ci.
    """
    if name.isascii():
        return name.upper()
    return "".join(map(_upper if accents else _general, name))


def last_named(
    rollback: SavepointText,
    newest_first: Iterable[SavepointText],
    *,
    accents: bool,
    inside: Callable[[int], bool],
) -> int | None:
    """Return the number of the savepoint that a ROLLBACK TO means, counted from the newest; None if there is none.

    Args:
        rollback: the ROLLBACK TO.
        newest_first: the savepoints that exist.
        accents: as for `savepoint_key`.
        inside: returns whether a routine set the savepoint of this number inside of a statement.
    """
    key = savepoint_key(rollback.name, accents=accents)
    first = None
    for number, savepoint in enumerate(newest_first):
        if savepoint_key(savepoint.name, accents=accents) != key:
            continue
        if savepoint.session == rollback.session:
            return number
        first = number if first is None else first
        if not inside(number):
            return first
    return first


def inside_statement(data: memoryview, before: int, at: int) -> bool:
    """Return True if the surrounding events show that a routine set a SAVEPOINT while a statement ran.

    The result is True if the rows after the SAVEPOINT do not end a statement before the next QUERY. It is also True if
    the same two or more tables are mapped before and after the SAVEPOINT, because a statement maps the tables of all
    routines that it calls.

    Args:
        data: buffer that holds the group.
        before: byte offset of an event before the SAVEPOINT, in the same group.
        at: byte offset of the SAVEPOINT's QUERY event.
    """
    mapped: list[bytes] = []
    mapping = False
    while before < at:
        header = parse_header(data, before)
        if header.event_type == EventType.TABLE_MAP:
            mapped = [*(mapped if mapping else ()), _table_id(data, before)]
        mapping = header.event_type == EventType.TABLE_MAP
        before += header.event_length
    at += parse_header(data, at).event_length
    after: list[bytes] = []
    ended = mapping = True
    while at < len(data):
        header = parse_header(data, at)
        if header.event_type in _ROWS:
            mapping, ended = False, data[at + HEADER_LENGTH + 6] & 1 != 0
        elif header.event_type == EventType.TABLE_MAP and mapping:
            after.append(_table_id(data, at))
        elif header.event_type in _NEXT:
            break
        at += header.event_length
    return not ended or (len(after) > 1 and after == mapped)


def _table_id(data: memoryview, at: int) -> bytes:
    return bytes(data[at + HEADER_LENGTH : at + HEADER_LENGTH + 6])


@cache
def _upper(character: str) -> str:
    """Return the simple upper case of a character, which is one character."""
    return next((made for made in (character.upper(), character.title()) if len(made) == 1), character)


@cache
def _general(character: str) -> str:
    """Return the weight of a character in utf8mb3_general_ci.

    In the blocks that this old collation knows, the weight is the upper case of the letter without accents.
    """
    code = ord(character)
    if code in _OTHER_WEIGHTS:
        return chr(_OTHER_WEIGHTS[code])
    if not any(first <= code <= last for first, last in _BLOCKS):
        return character
    letter = unicodedata.normalize("NFD", character)[0]
    upper = letter.upper()
    return upper if len(upper) == 1 else letter


_BLOCKS: Final = (
    *((0x61, 0x17F), (0x183, 0x199), (0x1A0, 0x233), (0x253, 0x25B), (0x260, 0x260), (0x263, 0x263), (0x268, 0x269)),
    *((0x26F, 0x26F), (0x272, 0x275), (0x280, 0x280), (0x283, 0x283), (0x288, 0x288), (0x28A, 0x28B), (0x292, 0x292)),
    *((0x345, 0x345), (0x386, 0x386), (0x388, 0x3D6), (0x3DB, 0x3F1), (0x400, 0x40E), (0x430, 0x481), (0x48D, 0x4C4)),
    *((0x4C8, 0x4C8), (0x4CC, 0x4CC), (0x4D0, 0x4F5), (0x4F8, 0x4F9), (0x561, 0x586), (0x1E00, 0x1EF9)),
    *((0x1F00, 0x1FBA), (0x1FBC, 0x1FBE), (0x1FC2, 0x1FC8), (0x1FCA, 0x1FCA), (0x1FCC, 0x1FCC), (0x1FD0, 0x1FD2)),
    *((0x1FD6, 0x1FDA), (0x1FE0, 0x1FE2), (0x1FE4, 0x1FEA), (0x1FEC, 0x1FEC), (0x1FF2, 0x1FF8), (0x1FFA, 0x1FFA)),
    *((0x1FFC, 0x1FFC), (0x2170, 0x217F), (0x24D0, 0x24E9), (0xFF41, 0xFF5A)),
)
_OTHER_WEIGHTS: Final = {
    0xDF: 0x53,
    0x3F2: 0x3A3,
    0x439: 0x419,
    0x1F71: 0x1FBB,
    0x1F73: 0x1FC9,
    0x1F75: 0x1FCB,
    0x1F77: 0x1FDB,
    0x1F79: 0x1FF9,
    0x1F7B: 0x1FEB,
    0x1F7D: 0x1FFB,
}
"""Weights of single characters. With `_BLOCKS`, they equal WEIGHT_STRING() on 10.5, 10.11 and 11.8."""
