"""Optional metadata of a table map: names, signedness, collations, labels, keys.

The metadata is a list of (type, length, value) up to the end of the event. binlog_row_metadata decides its content:
NO_LOG none, MINIMAL what is needed to read values, FULL also names, labels and keys. Each value covers only the columns
of its own kind, in column order; see `_READERS`. An unknown type is skipped by its length and reported in `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType, MetadataField
from replica.protocol.rows.column_def import CHARACTER, NUMERIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.protocol.wire import Cursor


@dataclass(slots=True)
class OptionalMetadata:
    """Optional metadata by column index. `columns` holds keyword arguments of ColumnDef."""

    types: Sequence[int]
    columns: list[dict[str, Any]] = field(default_factory=list)
    primary_key: tuple[int, ...] = ()
    key_prefixes: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    mysql: bool = False
    """Whether MySQL wrote it. MySQL does not count GEOMETRY among the columns with a character set."""

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
