"""Events of statements: QUERY, ANNOTATE_ROWS, and the context of statements that are logged as text.

INTVAR, RAND, USER_VAR and the LOAD DATA events appear only in statement format. A ROW server also writes them for
single statements, such as CREATE USER or an unsafe function in MIXED. These events are decoded so that their group can
be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replica.protocol.compression import inflate
from replica.protocol.constants import EventType, GtidExtraFlag, StatusVar
from replica.protocol.header import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor
# The text is bytes in the client's character set (`status.charset[0]`, a collation id). Keywords are ASCII in every
# set that a client may use.


_OVER_MAX_DBS: Final = 254
_ENDS_ALTER: Final = GtidExtraFlag.COMMIT_ALTER | GtidExtraFlag.ROLLBACK_ALTER


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusVars:
    """Session state of a statement. A field is None if the server did not log it."""

    flags2: int | None = None
    sql_mode: int | None = None
    catalog: str | None = None
    auto_increment: tuple[int, int] | None = None
    """auto_increment_increment and auto_increment_offset"""
    charset: tuple[int, int, int] | None = None
    """character_set_client, collation_connection, collation_server, as collation ids"""
    time_zone: str | None = None
    lc_time_names: int | None = None
    charset_database: int | None = None
    table_map_for_update: int | None = None
    master_data_written: int | None = None
    invoker: tuple[str, str] | None = None
    """user, host"""
    updated_db_names: tuple[bytes, ...] | None = None
    microseconds: int | None = None
    """Fraction of the statement's start time, in microseconds after the header's seconds."""
    explicit_defaults: int | None = None
    default_collation_for_utf8mb4: int | None = None
    sql_require_primary_key: int | None = None
    default_table_encryption: int | None = None
    xid: int | None = None
    gtid_flags_extra: int | None = None
    start_alter_seq_no: int | None = None
    character_set_collations: tuple[tuple[int, int], ...] | None = None
    unknown: int | None = None
    """Code of the first variable that this decoder does not know. Nothing after it can be read."""


@dataclass(frozen=True, slots=True)
class QueryEvent(Event):
    thread_id: int
    exec_time: int
    """Duration of the statement in seconds."""
    error: int
    """Error code with which the statement ended on the primary; 0 for none."""
    database: str
    """Default database of the session."""
    query: bytes
    status: StatusVars
    compressed: bool = False
    """Whether the event is a QUERY_COMPRESSED. `query` is inflated already."""


def _text(body: Cursor) -> str:
    return body.text(body.u8())


def _catalog_with_nul(body: Cursor) -> str:
    return body.name()


def _db_names(body: Cursor) -> tuple[bytes, ...]:
    count = body.u8()
    return () if count == _OVER_MAX_DBS else tuple(_until_nul(body) for _ in range(count))


def _until_nul(body: Cursor) -> bytes:
    name = bytearray()
    while byte := body.u8():
        name.append(byte)
    return bytes(name)


def _collations(body: Cursor) -> tuple[tuple[int, int], ...]:
    return tuple((body.u16(), body.u16()) for _ in range(body.u8()))


_READERS: Final[dict[int, tuple[str, Callable[[Cursor], Any]]]] = {
    StatusVar.FLAGS2: ("flags2", lambda body: body.u32()),
    StatusVar.SQL_MODE: ("sql_mode", lambda body: body.u64()),
    StatusVar.CATALOG: ("catalog", _catalog_with_nul),
    StatusVar.AUTO_INCREMENT: ("auto_increment", lambda body: (body.u16(), body.u16())),
    StatusVar.CHARSET: ("charset", lambda body: (body.u16(), body.u16(), body.u16())),
    StatusVar.TIME_ZONE: ("time_zone", _text),
    StatusVar.CATALOG_NZ: ("catalog", _text),
    StatusVar.LC_TIME_NAMES: ("lc_time_names", lambda body: body.u16()),
    StatusVar.CHARSET_DATABASE: ("charset_database", lambda body: body.u16()),
    StatusVar.TABLE_MAP_FOR_UPDATE: ("table_map_for_update", lambda body: body.u64()),
    StatusVar.MASTER_DATA_WRITTEN: ("master_data_written", lambda body: body.u32()),
    StatusVar.INVOKER: ("invoker", lambda body: (_text(body), _text(body))),
    StatusVar.UPDATED_DB_NAMES: ("updated_db_names", _db_names),
    StatusVar.MICROSECONDS: ("microseconds", lambda body: body.u24()),
    StatusVar.EXPLICIT_DEFAULTS: ("explicit_defaults", lambda body: body.u8()),
    StatusVar.DDL_XID: ("xid", lambda body: body.u64()),
    StatusVar.DEFAULT_COLLATION_FOR_UTF8MB4: ("default_collation_for_utf8mb4", lambda body: body.u16()),
    StatusVar.SQL_REQUIRE_PRIMARY_KEY: ("sql_require_primary_key", lambda body: body.u8()),
    StatusVar.DEFAULT_TABLE_ENCRYPTION: ("default_table_encryption", lambda body: body.u8()),
    StatusVar.HRNOW: ("microseconds", lambda body: body.u24()),
    StatusVar.XID: ("xid", lambda body: body.u64()),
    StatusVar.CHARACTER_SET_COLLATIONS: ("character_set_collations", _collations),
}
"""Code -> field and reader of the value. GTID_FLAGS3 fills two fields and has no reader here."""


def read_status_vars(block: Cursor) -> StatusVars:
    """Read a whole block of status variables.

    Values have no length on the wire, so an unknown code ends the reading, as on a replica.
    """
    values: dict[str, Any] = {}
    while block:
        code = block.u8()
        if code == StatusVar.GTID_FLAGS3:
            flags = values["gtid_flags_extra"] = block.u8()
            if flags & _ENDS_ALTER:
                values["start_alter_seq_no"] = block.u64()
        elif code in _READERS:
            field, read = _READERS[code]
            values[field] = read(block)
        else:
            # DUMMY marks the rest as padding, which a server leaves when it replaces an event for an old replica.
            block.rest()
            if code != StatusVar.DUMMY:
                values["unknown"] = code
    return StatusVars(**values)


def decode_query(header: EventHeader, body: Cursor, description: FormatDescriptionEvent) -> QueryEvent:
    with body.restrict(description.post_header_length(header.event_type)):
        thread_id, exec_time, db_length, error, status_length = (
            body.u32(), body.u32(), body.u8(), body.u16(), body.u16(),
        )  # fmt: skip
        body.rest()
    with body.restrict(status_length):
        status = read_status_vars(body)
    database = body.text(db_length)
    body.nul()
    compressed = header.event_type == EventType.QUERY_COMPRESSED
    query = bytes(inflate(body.rest()) if compressed else body.rest())
    return QueryEvent(header, thread_id, exec_time, error, database, query, status, compressed)


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
