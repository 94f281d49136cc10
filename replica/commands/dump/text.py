"""Text of events: one line each, statements decoded, invisible characters escaped.

In: decoded events. Out: text without control characters. `dump --events` shows the fields that are left out here.
"""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from replica.protocol.constants import GtidExtraFlag, GtidFlag, event_name
from replica.protocol.events import decode as e
from replica.protocol.plain_text import one_line
from replica.protocol.rows.values import decimal
from replica.rows.tables.plan import PREPARED
from replica.rows.types.types import type_named
from replica.schema.text.naming import quoted, quoted_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from replica.protocol.header import Event
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.tables.plan import ColumnPlan

_GTID_WORDS: Final = {
    GtidFlag.DDL: "ddl",
    GtidFlag.STANDALONE: "standalone",
    GtidFlag.TRANSACTIONAL: "transactional",
    GtidFlag.PREPARED_XA: "xa prepare",
    GtidFlag.COMPLETED_XA: "xa end",
}
_ALTER_WORDS: Final = {
    GtidExtraFlag.START_ALTER: "start alter",
    GtidExtraFlag.COMMIT_ALTER: "commit alter",
    GtidExtraFlag.ROLLBACK_ALTER: "rollback alter",
}
_REAL, _INTEGER, _DECIMAL = 1, 2, 4  # Item_result; 0 is a string
INSERT_ID: Final = 2  # kind of an INTVAR


def utc(seconds: int) -> str:
    """Return a time (Unix seconds) as text in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def type_name(kind: int) -> str:
    """Return the name of an event type, such as `Write_rows_v1`."""
    name, _, number = event_name(kind).partition(" (")
    return name.capitalize() if number else event_name(kind)


def group_words(event: Event) -> str:
    """Return the line above a transaction: its GTID, and the facts in its GTID event."""
    gtid = getattr(event, "gtid", None)
    words = [f"GTID {gtid or 'anonymous'}", f"{utc(event.header.timestamp)} UTC", f"server {event.header.server_id}"]
    if not isinstance(event, e.GtidEvent):  # MySQL's, which has nothing more for a reader
        return "  ".join(words)
    if event.thread_id is not None:
        words.append(f"thread {event.thread_id}")
    words += [word for flag, word in _GTID_WORDS.items() if event.flags2 & flag]
    words += [word for flag, word in _ALTER_WORDS.items() if event.flags_extra & flag]
    if event.start_alter_seq_no is not None:
        words.append(f"started by sequence number {event.start_alter_seq_no}")
    if event.commit_id is not None:
        words.append(f"commit group {event.commit_id}")
    if event.xa is not None:
        words.append(xa_words(event.xa))
    return "  ".join(words)


def xa_words(xa: e.XaId) -> str:
    """Return an XA id in the notation of XA statements."""
    return f"X'{xa.gtrid.hex()}',X'{xa.bqual.hex()}',{xa.format_id}"


def user_variable(event: e.UserVarEvent) -> str:
    """Return the value as an SQL literal. Text is in hex, because it is in the variable's own character set."""
    if event.value is None:
        return "NULL"
    if event.kind == _REAL:
        return repr(struct.unpack("<d", event.value)[0])
    if event.kind == _INTEGER:
        return str(int.from_bytes(event.value, "little", signed=not event.unsigned))
    if event.kind == _DECIMAL:
        precision, scale = event.value[0], event.value[1]
        return f"{decimal(event.value[2:], precision, scale):f}"
    return f"X'{event.value.hex()}'"


def _query(event: e.QueryEvent) -> str:
    words = f"default database {quoted(event.database)}" if event.database else "no default database"
    if event.exec_time:
        words += f", took {event.exec_time} s"
    return words + (f", ended with error {event.error}" if event.error else "")


def _rows(event: e.RowsEvent) -> str:
    words = f"table id {event.table_id}, {len(event.images)} bytes of rows"
    return words + (", ends the statement" if event.ends_statement else "")


_WORDS: Final[Mapping[type, Callable[..., str]]] = {
    e.AnnotateRowsEvent: lambda _: "",
    e.RowsQueryEvent: lambda _: "",
    e.StopEvent: lambda _: "the server shut down",
    e.FormatDescriptionEvent: lambda x: (
        f"server {x.server_version}, {'CRC32' if x.checksum else 'no'} checksums"
        + (f", created {utc(x.created)} UTC at the server's start" if x.created else "")
    ),
    e.GtidListEvent: lambda x: ", ".join(map(str, x.gtids)) or "empty",
    e.BinlogCheckpointEvent: lambda x: x.file,
    e.RotateEvent: lambda x: f"to {x.file}, position {x.position}",
    e.QueryEvent: _query,
    e.TableMapEvent: lambda x: (
        f"{quoted_table((x.database, x.table))}, table id {x.table_id}, {len(x.columns)} columns"
    ),
    e.RowsEvent: _rows,
    e.XidEvent: lambda x: f"{x.xid}, COMMIT",
    e.XaPrepareEvent: lambda x: f"{xa_words(x.xa)}{', committed in one phase' if x.one_phase else ''}",
    e.IntvarEvent: lambda x: f"{'INSERT_ID' if x.kind == INSERT_ID else 'LAST_INSERT_ID'} = {x.value}",
    e.RandEvent: lambda x: f"RAND_SEED1 = {x.seed1}, RAND_SEED2 = {x.seed2}",
    e.UserVarEvent: lambda x: f"@{quoted(x.name.decode('utf-8', 'replace'))} = {user_variable(x)}",
    e.LoadBlockEvent: lambda x: f"file {x.file_id}, {len(x.data)} bytes",
    e.ExecuteLoadQueryEvent: lambda x: f"file {x.file_id}, default database {quoted(x.database)}",
    e.IncidentEvent: lambda x: f"THE SERVER LOST EVENTS HERE: {x.message or 'no message'}",
    e.StartEncryptionEvent: lambda x: f"scheme {x.scheme}, key version {x.key_version}",
    e.UnknownEvent: lambda x: f"{len(x.body)} bytes, unknown and marked as ignorable",
    e.HeartbeatEvent: lambda x: f"{x.file}, position {x.position}",
}


def event_words(event: Event) -> str:
    """Return type and content of an event on one line: `Xid 18, COMMIT`."""
    made = _WORDS.get(type(event))
    words = made(event) if made else ", ".join(_fields(event))
    return one_line(f"{type_name(event.header.event_type)} {words}".rstrip())


def _fields(event: Event) -> list[str]:
    """Return the plain fields by name, for types that have no text of their own."""
    found = []
    for one in dataclasses.fields(event):
        value = getattr(event, one.name)
        if isinstance(value, str | int) and value:
            found.append(f"{one.name} {value}")
        elif isinstance(value, bytes | memoryview):
            found.append(f"{one.name} of {len(value)} bytes")
    return found


# The texts below are unescaped; plain_text.py makes them printable.

_BOTH: Final = (("VARBINARY", "VARCHAR"), ("BINARY", "CHAR"), ("TINYBLOB", "TINYTEXT"), ("MEDIUMBLOB", "MEDIUMTEXT"),
                ("LONGBLOB", "LONGTEXT"), ("BLOB", "TEXT"))  # fmt: skip


def declaration(column: ColumnDef, plan: ColumnPlan, *, unnamed: bool = False) -> str:
    """Return the declaration as in CREATE TABLE, with the properties that the stream has.

    Examples are 'VARCHAR(20) latin1 NOT NULL' and 'VARCHAR or VARBINARY(80)'.
    """
    type_ = type_named(PREPARED.get(column.type, column.type), plan.data_type)
    assert type_ is not None, "only columns that are read are shown"  # noqa: S101
    text_of_type = type_.declared if type_.written is None else type_.written(column, plan)
    if unnamed and column.collation is None:
        text_of_type = next(
            (text_of_type.replace(binary, f"{text} or {binary}") for binary, text in _BOTH if binary in text_of_type),
            text_of_type,
        )
    return text_of_type + ("" if column.nullable else " NOT NULL")


def as_json(value: object) -> str:
    """Return compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_line(value: object) -> bytes:
    """Return compact JSON as one line in UTF-8. Characters that UTF-8 cannot encode are escaped."""
    return as_json(value).encode("utf-8", "backslashreplace") + b"\n"


# `visible` escapes characters that reverse or hide text in a terminal. The code that makes the texts escapes C0
# controls.


_UNSEEN: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_UNSEEN_BYTES: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef\xbb\xbf"
)


def visible(text: str) -> str:
    """Return text in which characters that a terminal obeys instead of showing are escaped."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_bytes(text: bytes | memoryview) -> bytes | memoryview:
    """Return UTF-8 text with the same escapes as `visible`. Bytes that are not UTF-8 stay unchanged."""
    if _UNSEEN_BYTES.search(text) is None:
        return text
    return _UNSEEN_BYTES.sub(lambda found: f"\\u{ord(bytes(found[0]).decode()):04x}".encode(), text)
