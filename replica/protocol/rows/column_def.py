"""One column of a table map: its type code, and up to two bytes of metadata.

In: type code and metadata bytes as written. Out: a `ColumnDef` with named parameters. A type code whose metadata length
is unknown is refused, because the columns after it cannot be located.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError, UnsupportedColumnError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.values import decimal_width

if TYPE_CHECKING:
    from replica.protocol.wire import Cursor

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
    """MySQL only."""


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
