"""QUERY event: a statement as text, and the session state (status variables) that it depends on.

The text is bytes in the client's character set (`status.charset[0]`, a collation id). Keywords are ASCII in every set
that a client may use.
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
            # DUMMY marks the rest as padding. A server leaves it when it replaces an event for an old replica.
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
