"""TABLE_MAP: the table and the columns of the rows events that follow.

A table id is a number of the server's table cache, and may mean another definition after a DDL. Keep a map until the
rows event that ends its statement. Cache derived data by `content`, never by id.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ProtocolError, UnsupportedColumnError
from replica.protocol.constants import HEADER_LENGTH, MAX_COLUMNS, ColumnType, EventType, MetadataField
from replica.protocol.header import Event, EventHeader
from replica.protocol.rows.values import decimal_width
from replica.protocol.wire import Buffer, Cursor, is_set

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.protocol.header import FormatDescriptionEvent

# A type code whose metadata length is unknown is refused, because the columns after it cannot be located.


_T = ColumnType

METADATA_LENGTHS: Final[dict[int, int]] = {
    _T.TINY: 0, _T.SHORT: 0, _T.LONG: 0, _T.LONGLONG: 0, _T.INT24: 0, _T.YEAR: 0, _T.DATE: 0,
    _T.TIMESTAMP: 0, _T.TIME: 0, _T.DATETIME: 0,
    _T.FLOAT: 1, _T.DOUBLE: 1,
    _T.TIMESTAMP2: 1, _T.DATETIME2: 1, _T.TIME2: 1,
    _T.BLOB: 1, _T.GEOMETRY: 1, _T.BLOB_COMPRESSED: 1, _T.JSON: 1, _T.VECTOR: 1,
    _T.NEWDECIMAL: 2, _T.BIT: 2, _T.VARCHAR: 2, _T.VARCHAR_COMPRESSED: 2, _T.STRING: 2,
}  # fmt: skip
"""Number of metadata bytes of each type (Field::save_field_metadata). ENUM and SET are encoded as STRING."""

NUMERIC: Final = frozenset(
    {_T.TINY, _T.SHORT, _T.INT24, _T.LONG, _T.LONGLONG, _T.FLOAT, _T.DOUBLE, _T.NEWDECIMAL, _T.YEAR}
)
"""Types with a bit in SIGNEDNESS. YEAR is among them (its bit is always 1), BIT is not."""

CHARACTER: Final = frozenset(
    {_T.STRING, _T.VARCHAR, _T.BLOB, _T.GEOMETRY, _T.BLOB_COMPRESSED, _T.VARCHAR_COMPRESSED, _T.VECTOR}
)
"""Types that DEFAULT_CHARSET and COLUMN_CHARSET count, including binary columns, whose collation is 63. MySQL does not
count GEOMETRY.
"""

_FIXED_WIDTH: Final[dict[int, int]] = {
    _T.TINY: 1, _T.SHORT: 2, _T.INT24: 3, _T.LONG: 4, _T.LONGLONG: 8, _T.YEAR: 1, _T.DATE: 3,
    _T.TIMESTAMP: 4, _T.TIME: 3, _T.DATETIME: 8,
}  # fmt: skip
_TEMPORAL_WIDTH: Final[dict[int, int]] = {_T.TIMESTAMP2: 4, _T.DATETIME2: 5, _T.TIME2: 3}
_PREFIXED: Final = frozenset({_T.BLOB, _T.GEOMETRY, _T.BLOB_COMPRESSED, _T.JSON, _T.VECTOR})
_CHARACTERS: Final = frozenset({_T.STRING, _T.VARCHAR, _T.VARCHAR_COMPRESSED})
_MAX_SHORT: Final = 255  # longest CHAR and VARCHAR in bytes with one length byte; longer ones have two
_MAX_FSP: Final = 6
_MAX_PRECISION: Final = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDef:
    """A column as the stream describes it.

    None means that the server did not log the property (binlog_row_metadata).
    """

    type: int
    """ColumnType with ENUM and SET resolved."""
    metadata: bytes
    """The metadata bytes as written."""
    length: int
    """Length, whose meaning depends on the type.

    Fixed-width types (integers, FLOAT, DOUBLE, ENUM, SET, dates and times with their fraction): bytes of a value. CHAR,
    VARCHAR and their binary forms: maximum bytes of a value; the length prefix has 1 byte up to 255, else 2. BLOB,
    GEOMETRY, JSON, compressed BLOB: bytes of the length prefix. BIT: bits. DECIMAL: 0.
    """
    precision: int = 0
    """DECIMAL: total number of digits."""
    scale: int = 0
    """DECIMAL: number of digits after the point."""
    fsp: int = 0
    """TIME, DATETIME, TIMESTAMP: number of fractional digits of a second."""
    nullable: bool = True
    name: str | None = None
    unsigned: bool | None = None
    """Numeric columns only. True for YEAR."""
    collation: int | None = None
    """Collation id; 63 is binary. Character, ENUM and SET columns only."""
    labels: tuple[bytes, ...] | None = None
    """ENUM and SET: the labels in the column's character set."""
    is_key: bool = False
    """Whether the column is part of the primary key, if the key was logged."""
    geometry: int | None = None
    dimension: int | None = None
    """MySQL's VECTOR: number of dimensions."""
    visible: bool | None = None
    """Whether SELECT * returns the column. MySQL only."""


def read_column_type(code: int, block: Cursor, index: int) -> ColumnDef:
    """Parse a column's type and metadata from the metadata block. Optional metadata such as names is added later.

    Raises:
        UnsupportedColumnError: the type code is unknown.
        ProtocolError: the metadata is impossible for the type.
    """
    size = METADATA_LENGTHS.get(code)
    if size is None:
        raise UnsupportedColumnError(
            f"column {index + 1} has the unknown type code {code}",
            hint="The server is newer than this decoder, or the bytes are damaged. Leave the table out to continue.",
        )
    at = block.offset
    metadata = bytes(block.take(size))
    if code == _T.STRING:
        return _string(metadata, index, at)
    if code in (_T.VARCHAR, _T.VARCHAR_COMPRESSED):
        return ColumnDef(type=code, metadata=metadata, length=int.from_bytes(metadata, "little"))
    if code == _T.NEWDECIMAL:
        precision, scale = metadata
        if not 0 < precision <= _MAX_PRECISION or scale > precision:
            raise ProtocolError(f"column {index + 1} is DECIMAL({precision},{scale}), which is not valid", offset=at)
        return ColumnDef(type=code, metadata=metadata, length=0, precision=precision, scale=scale)
    if code == _T.BIT:
        bits = metadata[1] * 8 + metadata[0]
        if metadata[0] > 7 or not 0 < bits <= 64:
            raise ProtocolError(f"column {index + 1} is BIT with metadata {metadata.hex()}", offset=at)
        return ColumnDef(type=code, metadata=metadata, length=bits)
    if code in _TEMPORAL_WIDTH:
        fsp = metadata[0]
        if fsp > _MAX_FSP:
            raise ProtocolError(f"column {index + 1} has {fsp} digits of a second's fraction", offset=at)
        return ColumnDef(type=code, metadata=metadata, length=_TEMPORAL_WIDTH[code] + (fsp + 1) // 2, fsp=fsp)
    length = metadata[0] if size else _FIXED_WIDTH[code]
    _check_length(code, length, index, at)
    return ColumnDef(type=code, metadata=metadata, length=length)


def _check_length(code: int, length: int, index: int, at: int) -> None:
    allowed = {_T.FLOAT: (4,), _T.DOUBLE: (8,)}.get(ColumnType(code), (1, 2, 3, 4, 8))
    if length not in allowed:
        raise ProtocolError(f"column {index + 1} ({ColumnType(code).name}) has metadata {length}", offset=at)


def _string(metadata: bytes, index: int, at: int) -> ColumnDef:
    real, length = metadata
    if real & 0x30 != 0x30:
        # Lengths above 255 have their two high bits, inverted, in bits of the type byte that are set in all real types.
        length |= (real & 0x30 ^ 0x30) << 4
        real |= 0x30
    widths = {_T.STRING: range(1024), _T.ENUM: (1, 2), _T.SET: (1, 2, 3, 4, 8)}
    if real not in widths or length not in widths[ColumnType(real)]:
        raise ProtocolError(f"column {index + 1} is STRING with metadata {metadata.hex()}", offset=at)
    return ColumnDef(type=real, metadata=metadata, length=length)


def value_extent(column: ColumnDef) -> tuple[int, int]:
    """Return (width, prefix) of the values in a row image, in bytes.

    One of the two is 0. `width` is the size of every value, `prefix` the size of the length before each value.
    """
    if column.type in _PREFIXED:
        return 0, column.length
    if column.type in _CHARACTERS:
        return 0, 1 if column.length <= _MAX_SHORT else 2
    if column.type == _T.NEWDECIMAL:
        return decimal_width(column.precision, column.scale), 0
    return (column.length + 7) // 8 if column.type == _T.BIT else column.length, 0


# The metadata is a list of (type, length, value) up to the end of the event. binlog_row_metadata decides its content:
# NO_LOG none, MINIMAL what is needed to read values, FULL also names, labels and keys. Each value covers only the
# columns of its own kind, in column order; see `_READERS`. An unknown type is skipped by its length and reported in
# `unknown`.


@dataclass(slots=True)
class OptionalMetadata:
    """Optional metadata by column index. `columns` holds keyword arguments of ColumnDef."""

    types: Sequence[int]
    columns: list[dict[str, Any]] = field(default_factory=list)
    primary_key: tuple[int, ...] = ()
    key_prefixes: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    mysql: bool = False
    """Whether MySQL wrote the table map. MySQL does not count GEOMETRY among the columns with a character set."""

    def __post_init__(self) -> None:
        self.columns = [{} for _ in self.types]

    def of_type(self, types: frozenset[ColumnType]) -> list[dict[str, Any]]:
        counted = types - _GEOMETRY if self.mysql and types is CHARACTER else types
        return [column for code, column in zip(self.types, self.columns, strict=True) if code in counted]


_ENUM = frozenset({ColumnType.ENUM})
_SET = frozenset({ColumnType.SET})
_GEOMETRY = frozenset({ColumnType.GEOMETRY})
_VECTOR = frozenset({ColumnType.VECTOR})


def _bit_per_column(columns: list[dict[str, Any]], value: Cursor, key: str) -> None:
    # Most significant bit first, unlike every other bit set of the protocol.
    bits = value.bits(len(columns))
    for index, column in enumerate(columns):
        column[key] = bool(bits[index >> 3] & (0x80 >> (index & 7)))


def _signedness(found: OptionalMetadata, value: Cursor) -> None:
    _bit_per_column(found.of_type(NUMERIC), value, "unsigned")


def _visibility(found: OptionalMetadata, value: Cursor) -> None:
    _bit_per_column(found.columns, value, "visible")


def _default_charset(types: frozenset[ColumnType]) -> Callable[[OptionalMetadata, Cursor], None]:
    def read(found: OptionalMetadata, value: Cursor) -> None:
        columns = found.of_type(types)
        default = value.lenenc()
        for column in columns:
            column["collation"] = default
        while value:
            at = value.offset
            index, collation = value.lenenc(), value.lenenc()
            if index >= len(columns):
                raise ProtocolError(f"a collation for character column {index} of {len(columns)}", offset=at)
            columns[index]["collation"] = collation

    return read


def _number_per_column(types: frozenset[ColumnType], key: str) -> Callable[[OptionalMetadata, Cursor], None]:
    def read(found: OptionalMetadata, value: Cursor) -> None:
        for column in found.of_type(types):
            column[key] = value.lenenc()

    return read


def _names(found: OptionalMetadata, value: Cursor) -> None:
    for column in found.columns:
        column["name"] = value.text(value.lenenc())


def _labels(types: frozenset[ColumnType]) -> Callable[[OptionalMetadata, Cursor], None]:
    def read(found: OptionalMetadata, value: Cursor) -> None:
        for column in found.of_type(types):
            # No preallocation from the count, so that a damaged count stops at the end of the value.
            column["labels"] = tuple(bytes(value.take(value.lenenc())) for _ in range(value.lenenc()))

    return read


def _key(found: OptionalMetadata, pairs: list[tuple[int, int]], at: int) -> None:
    for index, _ in pairs:
        if index >= len(found.columns):
            raise ProtocolError(f"the primary key names column {index} of {len(found.columns)}", offset=at)
        found.columns[index]["is_key"] = True
    found.primary_key = tuple(index for index, _ in pairs)
    found.key_prefixes = tuple(prefix for _, prefix in pairs)


def _simple_key(found: OptionalMetadata, value: Cursor) -> None:
    at, pairs = value.offset, []
    while value:
        pairs.append((value.lenenc(), 0))
    _key(found, pairs, at)


def _key_with_prefix(found: OptionalMetadata, value: Cursor) -> None:
    at, pairs = value.offset, []
    while value:
        pairs.append((value.lenenc(), value.lenenc()))
    _key(found, pairs, at)


_READERS: Final[dict[int, Callable[[OptionalMetadata, Cursor], None]]] = {
    MetadataField.SIGNEDNESS: _signedness,
    MetadataField.DEFAULT_CHARSET: _default_charset(CHARACTER),
    MetadataField.COLUMN_CHARSET: _number_per_column(CHARACTER, "collation"),
    MetadataField.COLUMN_NAME: _names,
    MetadataField.SET_STR_VALUE: _labels(_SET),
    MetadataField.ENUM_STR_VALUE: _labels(_ENUM),
    MetadataField.GEOMETRY_TYPE: _number_per_column(_GEOMETRY, "geometry"),
    MetadataField.SIMPLE_PRIMARY_KEY: _simple_key,
    MetadataField.PRIMARY_KEY_WITH_PREFIX: _key_with_prefix,
    MetadataField.ENUM_AND_SET_DEFAULT_CHARSET: _default_charset(_ENUM | _SET),
    MetadataField.ENUM_AND_SET_COLUMN_CHARSET: _number_per_column(_ENUM | _SET, "collation"),
    MetadataField.COLUMN_VISIBILITY: _visibility,
    MetadataField.VECTOR_DIMENSIONALITY: _number_per_column(_VECTOR, "dimension"),
}


def read_optional_metadata(types: Sequence[int], cursor: Cursor, *, mysql: bool = False) -> OptionalMetadata:
    """Parse the metadata up to the end of the cursor.

    Args:
        types: resolved column types, in column order.
        cursor: at the start of the metadata.
        mysql: whether MySQL wrote the event.
    """
    found = OptionalMetadata(types, mysql=mysql)
    while cursor:
        code, length = cursor.u8(), cursor.lenenc()
        reader = _READERS.get(code)
        if reader is None:
            found.unknown += (code,)
            cursor.skip(length)
            continue
        with cursor.restrict(length):
            reader(found, cursor)
    return found


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
