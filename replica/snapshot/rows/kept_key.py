"""Kept key, the form in which an offset stores a key: a mark of the key columns, and the length-prefixed values.

Each value has the bytes of a row image that this client builds. `key_bytes` turns a kept key into canonical key bytes.
`key_literals` turns it into SQL literals that find exactly the same key. The session must have time_zone '+00:00' and
ALLOW_INVALID_DATES in its sql_mode.

Bytes of other columns raise `KeyChangedError`: the table has changed since the key was stored. The mark detects this
even if the values would fit. Older checkpoints have a mark without collations, or none; then only the values are
checked.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from replica.errors import KeyChangedError, ProtocolError, SchemaError
from replica.protocol.rows import values as v
from replica.protocol.rows.table_map import parse_table_map, value_extent
from replica.protocol.wire import Cursor, is_set
from replica.rows.types.keys import READ_AGAIN, KeyPart, key_bytes_of, key_part
from replica.schema.text.naming import column_key
from replica.snapshot.rows.table_map import table_map_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replica.protocol.rows.table_map import ColumnDef
    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.rows.row_block import TableKey

_LENGTH_BYTES: Final = 2  # before each value; keys of the server have at most 3072 bytes
_MARKED: Final = b"\xff\xff"  # above the maximum length of a value, so it cannot be a length
_MARK_BYTES: Final = len(_MARKED) + 8


def key_parts(schema: TableSchema, key: TableKey, columns: Sequence[ColumnDef] | None = None) -> tuple[KeyPart, ...]:
    """Return the parts that make up the key bytes of row images, in key order.

    `columns`: columns of the stream's table map, whose visible columns match the definition in order. The default is
    the columns of the table map built from the definition.
    """
    wire = parse_table_map(table_map_body(schema)).columns if columns is None else columns
    if max(key.columns) >= len(wire):
        raise SchemaError(
            f"Table {schema.name} has {len(wire)} columns in its table map, "
            f"and column {max(key.columns) + 1} is in its key {key.index}.",
            hint="The table was changed after its key was chosen: read its definition again.",
        )
    return tuple(key_part(number, wire[number], schema.columns[number]) for number in key.columns)


def key_bytes(schema: TableSchema, key: TableKey, kept: bytes) -> bytes:
    """Return the canonical key bytes of a kept key."""
    values = _values(schema, key, kept)
    return key_bytes_of(key_parts(schema, key), values)


def key_literals(schema: TableSchema, key: TableKey, kept: bytes) -> tuple[str, ...]:
    """Return a kept key as exact SQL literals, one per column in key order."""
    wire = parse_table_map(table_map_body(schema)).columns
    values = _values(schema, key, kept)
    return tuple(
        _literal(schema.columns[number], wire[number], value) for number, value in zip(key.columns, values, strict=True)
    )


def kept_key(schema: TableSchema, key: TableKey, image: bytes) -> bytes:
    """Return the kept key of a row image that this client built."""
    columns = parse_table_map(table_map_body(schema)).columns
    cursor = Cursor(image)
    nulls = cursor.bits(len(columns))
    values: list[bytes | None] = []
    for number, column in enumerate(columns):
        if is_set(nulls, number):
            values.append(None)
            continue
        width, prefix = value_extent(column)
        size = int.from_bytes(cursor.take(prefix), "little") if prefix else width
        values.append(bytes(cursor.take(size)))
    kept = []
    for number in key.columns:
        value = values[number]
        if value is None:
            raise ProtocolError(f"column {schema.columns[number].name} of the key {key.index} is NULL")
        kept.append(value)
    return _kept(_mark(schema, key), kept)


def kept_integer(schema: TableSchema, key: TableKey, kept: bytes) -> int:
    """Return the integer in a kept key whose only column is an integer."""
    (value,) = _values(schema, key, kept)
    return v.integer(value, signed=not schema.columns[key.columns[0]].unsigned)


def kept_integers(schema: TableSchema, key: TableKey, numbers: Iterable[int]) -> list[bytes]:
    """Return the kept keys for these integers; the table has a single integer column as its key."""
    (index,) = key.columns
    width, _ = value_extent(parse_table_map(table_map_body(schema)).columns[index])
    mark, signed = _mark(schema, key), not schema.columns[index].unsigned
    return [_kept(mark, [number.to_bytes(width, "little", signed=signed)]) for number in numbers]


def _kept(mark: bytes, values: Sequence[bytes]) -> bytes:
    return mark + b"".join(len(value).to_bytes(_LENGTH_BYTES, "little") + value for value in values)


def _mark(schema: TableSchema, key: TableKey) -> bytes:
    """Return a digest of the key columns' names, types, collations and order."""
    return _digest([(column_key(column.name), *_typed(column)) for column in _columns(schema, key)])


def _older_marks(schema: TableSchema, key: TableKey) -> tuple[bytes, bytes]:
    """Return the marks of older checkpoints: names compared with `casefold`, first with collations, then without."""
    columns = _columns(schema, key)
    return (
        _digest([(column.name.casefold(), *_typed(column)) for column in columns]),
        _digest([(column.name.casefold(), column.column_type) for column in columns]),
    )


def _columns(schema: TableSchema, key: TableKey) -> list[ColumnSchema]:
    return [schema.columns[number] for number in key.columns]


def _typed(column: ColumnSchema) -> tuple[str | None, ...]:
    return (column.column_type,) if column.charset is None else (column.column_type, column.collation)


def _digest(columns: Sequence[tuple[str | None, ...]]) -> bytes:
    return _MARKED + hashlib.blake2b(repr(columns).encode(), digest_size=_MARK_BYTES - len(_MARKED)).digest()


def _values(schema: TableSchema, key: TableKey, kept: bytes) -> list[bytes]:
    wire = parse_table_map(table_map_body(schema)).columns
    values, at = [], 0
    if kept.startswith(_MARKED):
        if kept[:_MARK_BYTES] not in (_mark(schema, key), *_older_marks(schema, key)):
            raise _changed_key(schema, key)
        at = _MARK_BYTES
    for number in key.columns:
        size = int.from_bytes(kept[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        width, _ = value_extent(wire[number])
        most = width or wire[number].length
        if at + size > len(kept) or size > most or (width and size != width):
            raise _changed_key(schema, key)
        values.append(kept[at : at + size])
        at += size
    if at != len(kept):
        raise _changed_key(schema, key)
    return values


def _changed_key(schema: TableSchema, key: TableKey) -> KeyChangedError:
    """Return the error for a table whose key differs from the key of its delivered part."""
    now = ", ".join(f"{schema.columns[number].name} {schema.columns[number].column_type}" for number in key.columns)
    return KeyChangedError(
        f"the key of table {schema.name} was changed while it was read: it {f'is ({now})' if now else 'is gone'} now, "
        "and its delivered rows were read by another key.",
        hint=READ_AGAIN,
    )


def _literal(column: ColumnSchema, wire: ColumnDef, value: bytes) -> str:
    write = _LITERALS.get(column.data_type)
    if write is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which cannot be part of a key.",
            hint="Choose the table's key again.",
        )
    return write(value, column, wire)


def _year(value: bytes, column: ColumnSchema) -> str:
    year = v.year(value)
    # The server compares YEAR(2) by its two digits.
    return str(year % 100 if column.column_type.startswith("year(2)") else year)


def _unsigned(value: bytes, *_: object) -> str:
    return str(v.integer(value, signed=False))


def _integer(value: bytes, column: ColumnSchema, _: ColumnDef) -> str:
    return str(v.integer(value, signed=not column.unsigned))


def _characters(value: bytes, column: ColumnSchema, _: ColumnDef) -> str:
    return f"_{column.charset} x'{value.hex()}'"


_LITERALS: Final[dict[str, Callable[[bytes, ColumnSchema, ColumnDef], str]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), _integer),
    **dict.fromkeys(("enum", "set"), _unsigned),
    **dict.fromkeys(("char", "varchar"), _characters),
    "bit": lambda value, *_: str(v.bit(value)),
    "year": lambda value, column, _: _year(value, column),
    "decimal": lambda value, _, wire: f"{v.decimal(value, wire.precision, wire.scale):f}",
    "date": lambda value, *_: f"'{v.format_date(v.date_parts(value))}'",
    "datetime": lambda value, _, wire: f"'{v.format_datetime(v.datetime_parts(value), wire.fsp)}'",
    "timestamp": lambda value, _, wire: f"'{v.format_timestamp(v.timestamp(value), wire.fsp)}'",
    "time": lambda value, _, wire: f"'{v.format_time(v.time(value), wire.fsp)}'",
    "uuid": lambda value, *_: f"'{v.uuid(value)}'",
    "inet4": lambda value, *_: f"'{v.inet4(value)}'",
    "inet6": lambda value, *_: f"'{v.inet6(value)}'",
    "binary": lambda value, _, wire: f"x'{v.padded(value, wire.length).hex()}'",
    "varbinary": lambda value, *_: f"x'{value.hex()}'",
}
"""SQL literal of a value in a row image, for every type that has a KeyForm."""
