"""TABLE_MAP: the table and the columns of the rows events that follow.

A table id is a number of the server's table cache, and may mean another definition after a DDL. Keep a map until the
rows event that ends its statement. Cache derived data by `content`, never by id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError, UnsupportedColumnError
from replica.protocol.constants import HEADER_LENGTH, MAX_COLUMNS, EventType
from replica.protocol.header import Event, EventHeader
from replica.protocol.rows.column_def import ColumnDef, read_column_type
from replica.protocol.rows.optional_metadata import read_optional_metadata
from replica.protocol.wire import Buffer, Cursor, is_set

if TYPE_CHECKING:
    from replica.protocol.header import FormatDescriptionEvent

__all__ = ["ColumnDef", "TableMapEvent", "TableMapHead", "decode_table_map", "parse_table_map"]

NO_HEADER: Final = EventHeader(0, EventType.TABLE_MAP, 0, HEADER_LENGTH, 0, 0)
"""Header of a table map that was parsed from a body alone."""


class TableMapHead(NamedTuple):
    """The part of a table map before its columns, which suffices to decide whether the table is selected."""

    table_id: int
    flags: int
    database: str
    table: str


@dataclass(frozen=True, slots=True)
class TableMapEvent(Event):
    table_id: int
    flags: int
    database: str
    table: str
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[int, ...]
    """Column indexes in key order. Empty if there is no key or the key was not logged."""
    key_prefixes: tuple[int, ...]
    """Number of characters in the key, for each key column; 0 for the whole column."""
    unknown_metadata: tuple[int, ...]
    """Types of optional metadata that this decoder does not know and skipped."""
    content: bytes
    """All bytes after table id and flags. Equal bytes mean an equal definition."""


def parse_table_map(
    body: Buffer, post_header_length: int = 8, header: EventHeader = NO_HEADER, *, mysql: bool = False
) -> TableMapEvent:
    """Parse the table map in `body`, an event without header and checksum. Offsets in errors count from its start.

    Raises:
        UnsupportedColumnError: a column's type code is unknown. The message names the table.
        ProtocolError: the map is damaged.
    """
    return _read(Cursor(body), post_header_length, header, mysql=mysql)


def decode_table_map(header: EventHeader, body: Cursor, description: FormatDescriptionEvent) -> TableMapEvent:
    return _read(body, description.post_header_length(header.event_type), header, mysql=description.is_mysql)


def _read_name(cursor: Cursor, post_header_length: int) -> tuple[TableMapHead, memoryview]:
    """Read the head, and return it with the bytes that define the table, from its name to the end of the event."""
    with cursor.restrict(post_header_length):
        table_id = cursor.u32() if post_header_length == 6 else cursor.u48()
        flags = cursor.u16()
        cursor.rest()
    content = cursor.peek_rest()
    return TableMapHead(table_id, flags, cursor.name(), cursor.name()), content


def _read(cursor: Cursor, post_header_length: int, header: EventHeader, *, mysql: bool) -> TableMapEvent:
    name, content = _read_name(cursor, post_header_length)
    at = cursor.offset
    count = cursor.lenenc()
    if count > MAX_COLUMNS:
        raise ProtocolError(f"a table of {count} columns; tables have at most {MAX_COLUMNS}", offset=at)
    codes = bytes(cursor.take(count))
    try:
        with cursor.restrict(cursor.lenenc()):
            bare = [read_column_type(code, cursor, index) for index, code in enumerate(codes)]
    except UnsupportedColumnError as error:
        raise UnsupportedColumnError(f"{name.database}.{name.table}: {error.message}", hint=error.hint) from None
    nullable = cursor.bits(count)
    optional = read_optional_metadata([column.type for column in bare], cursor, mysql=mysql)
    columns = tuple(
        replace(column, nullable=is_set(nullable, index), **optional.columns[index])
        for index, column in enumerate(bare)
    )
    return TableMapEvent(
        header,
        *name,
        columns,
        optional.primary_key,
        optional.key_prefixes,
        optional.unknown,
        bytes(content),
    )
