"""Events of statements: ANNOTATE_ROWS before its rows, and the context of statements that are logged as text.

INTVAR, RAND, USER_VAR and the LOAD DATA events appear only in statement format. A ROW server also writes them for
single statements, such as CREATE USER or an unsafe function in MIXED. They are decoded so that their group can be
shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.protocol.events.query import StatusVars, read_status_vars
from replica.protocol.header import Event

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

_USER_VAR_INT: Final = 2


@dataclass(frozen=True, slots=True)
class AnnotateRowsEvent(Event):
    """The statement that made the row changes after it, in the client's character set."""

    query: bytes


@dataclass(frozen=True, slots=True)
class RowsQueryEvent(Event):
    """MySQL's equivalent of ANNOTATE_ROWS."""

    query: bytes


@dataclass(frozen=True, slots=True)
class IntvarEvent(Event):
    """A number for the next statement. Kind 1 is LAST_INSERT_ID, kind 2 is INSERT_ID."""

    kind: int
    value: int


@dataclass(frozen=True, slots=True)
class RandEvent(Event):
    seed1: int
    seed2: int


@dataclass(frozen=True, slots=True)
class UserVarEvent(Event):
    """A user variable of the next statement. `value` is in the server's packed form, None for NULL."""

    name: bytes
    value: bytes | None
    kind: int
    """Item_result: 0 string, 1 real, 2 integer, 4 decimal."""
    collation: int
    unsigned: bool


@dataclass(frozen=True, slots=True)
class LoadBlockEvent(Event):
    """A piece of the file that a LOAD DATA statement read (BEGIN_LOAD_QUERY, APPEND_BLOCK).

    A DELETE_FILE means that the statement failed.
    """

    file_id: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class ExecuteLoadQueryEvent(Event):
    """The LOAD DATA statement. Its bytes `name_start` to `name_end` are the file name."""

    thread_id: int
    exec_time: int
    error: int
    database: str
    query: bytes
    status: StatusVars
    file_id: int
    name_start: int
    name_end: int
    duplicates: int
    """0 error, 1 ignore, 2 replace."""


def decode_annotate_rows(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> AnnotateRowsEvent:
    return AnnotateRowsEvent(header, bytes(body.rest()))


def decode_rows_query(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> RowsQueryEvent:
    body.u8()  # length of the text modulo 256, not needed
    return RowsQueryEvent(header, bytes(body.rest()))


def decode_intvar(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> IntvarEvent:
    return IntvarEvent(header, body.u8(), body.u64())


def decode_rand(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> RandEvent:
    return RandEvent(header, body.u64(), body.u64())


def decode_user_var(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> UserVarEvent:
    name = bytes(body.take(body.u32()))
    if body.u8():
        return UserVarEvent(header, name, None, 0, 0, unsigned=False)
    kind, collation = body.u8(), body.u32()
    value = bytes(body.take(body.u32()))
    unsigned = kind == _USER_VAR_INT and bool(body) and bool(body.u8() & 1)
    return UserVarEvent(header, name, value, kind, collation, unsigned)


def decode_load_block(header: EventHeader, body: Cursor, description: FormatDescriptionEvent) -> LoadBlockEvent:
    with body.restrict(description.post_header_length(header.event_type)):
        file_id = body.u32()
        body.rest()
    return LoadBlockEvent(header, file_id, body.rest())


def decode_execute_load_query(
    header: EventHeader, body: Cursor, description: FormatDescriptionEvent
) -> ExecuteLoadQueryEvent:
    with body.restrict(description.post_header_length(header.event_type)):
        thread_id, exec_time, db_length, error, status_length = (
            body.u32(), body.u32(), body.u8(), body.u16(), body.u16(),
        )  # fmt: skip
        file_id, name_start, name_end, duplicates = body.u32(), body.u32(), body.u32(), body.u8()
        body.rest()
    with body.restrict(status_length):
        status = read_status_vars(body)
    database = body.text(db_length)
    body.nul()
    return ExecuteLoadQueryEvent(
        header,
        thread_id,
        exec_time,
        error,
        database,
        bytes(body.rest()),
        status,
        file_id,
        name_start,
        name_end,
        duplicates,
    )
