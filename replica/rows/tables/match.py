"""Matching of the columns of a table map with the columns of the catalog.

`catalog_columns` returns, per wire column, the `ColumnSchema` that describes it, or None. The catalog holds the current
definition, and the row may be older. So every fact that both sides have is compared: type, widths, digits, signedness,
character set. If the table map has names, the code ignores a catalog column that disagrees, because the row describes
itself. Without names, columns match by position, and one disagreement is a SchemaError: the positions are unreliable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.charset import BINARY, charset_named, charset_of
from replica.protocol.constants import ColumnType
from replica.rows.tables.plan import PREPARED
from replica.rows.types.entry import Sql
from replica.rows.types.types import KINDS, NAMES, type_named, type_of_wire
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.table_map import ColumnDef, TableMapEvent

_FRACTIONAL = (ColumnType.DATETIME2, ColumnType.TIMESTAMP2, ColumnType.TIME2)

_OWN = re.compile(r"row_start|row_end|DB_ROW_HASH_\d+")
_HINT = "Set binlog_row_metadata=FULL on the primary, so that the binlog contains the column definitions."
_STALE = "the table was changed after the rows were written, or the catalog was read before the change."


def catalog_columns(table_map: TableMapEvent, schema: TableSchema | None) -> list[ColumnSchema | None]:
    """Return the catalog's definition of each wire column.

    Args:
        table_map: The table map, with or without column names.
        schema: The catalog's definition of the table, None if it is unknown.

    Returns:
        One entry per wire column; None if the catalog has no definition of the column that agrees with the table map.

    Raises:
        SchemaError: The table map has no names, and its columns disagree with the catalog.
    """
    if schema is None:
        return [None] * len(table_map.columns)
    if all(column.name is not None for column in table_map.columns):
        by_name = {column_key(column.name): column for column in schema.columns}
        candidates = [by_name.get(column_key(column.name or "")) for column in table_map.columns]
        return [
            known if known is not None and not disagreement(column, known) else None
            for column, known in zip(table_map.columns, candidates, strict=True)
        ]
    name = f"{table_map.database}.{table_map.table}"
    expected = _expected(table_map.columns, schema)
    if expected is None:
        raise SchemaError(
            f"Table {name} has {len(table_map.columns)} columns in the binlog and "
            f"{sum(not column.hidden for column in schema.columns)} in the catalog: {_STALE}",
            hint=_HINT,
        )
    for column, known in zip(table_map.columns, expected, strict=True):
        what = disagreement(column, known)
        if what:
            raise SchemaError(
                f"Column {known.name} of table {name} is {known.column_type} in the catalog, but its {what} "
                f"in the binlog is different: {_STALE}",
                hint=_HINT,
            )
    return list(expected)


def check_named(table_map: TableMapEvent) -> None:
    """Refuse a table map without column names, for a table without a known definition.

    Raises:
        SchemaError: The table map lacks the name of at least one column.
    """
    if any(column.name is None for column in table_map.columns):
        raise SchemaError(
            f"the rows of {table_map.database}.{table_map.table} do not name their columns, and no definition of the "
            "table is known.",
            hint=_HINT,
        )


def difference(table_map: TableMapEvent, schema: TableSchema, *, computed: bool = True) -> str:
    """Return the first difference between a table map and a definition, as text for a message.

    A column that only one side has is a difference, except for columns that the server adds.

    Args:
        table_map: The table map, with or without column names.
        schema: The definition of the table.
        computed: True if the table map must also have the generated columns.

    Returns:
        An empty string if both agree in every fact that both have.
    """
    if not all(column.name is not None for column in table_map.columns):
        try:
            catalog_columns(table_map, schema)
        except SchemaError as error:
            return error.message
        return ""
    declared = {column_key(column.name): column for column in schema.columns}
    wire = {column_key(column.name or ""): column for column in table_map.columns}
    for name, column in wire.items():
        known = declared.get(name)
        if known is None and not _is_own(column):
            return f"its rows have a column {column.name}, which its definition does not have."
        if known is not None and (what := disagreement(column, known) or _labels(column, known)):
            return f"its column {known.name} is {known.column_type}, but its {what} in the rows is different."
    expected = {name: column for name, column in declared.items() if computed or not column.computed}
    missing = [column.name for name, column in expected.items() if name not in wire and not column.hidden]
    return f"its rows have no column {missing[0]}, which its definition has." if missing else ""


def _is_own(column: ColumnDef) -> bool:
    """Return True if the server may have added the column: a bound of the row period, or the hash of a long key."""
    return column.type in (ColumnType.TIMESTAMP2, ColumnType.LONGLONG) and _OWN.fullmatch(column.name or "") is not None


def _labels(column: ColumnDef, schema: ColumnSchema) -> str:
    """Return a phrase if the labels of an ENUM or SET differ; '' if they agree or cannot be compared."""
    if column.labels is None or schema.labels is None or column.collation in (None, BINARY):
        return ""
    try:
        charset = charset_of(column.collation)
    except UnsupportedColumnError:
        return ""
    return "" if tuple(map(charset.decode, column.labels)) == schema.labels else "list of labels"


def _expected(wire: Sequence[ColumnDef], schema: TableSchema) -> list[ColumnSchema] | None:
    """Return the catalog's columns in wire order, with the hidden columns that the wire has.

    The wire has hidden columns after the declared ones. First the row period, if the table was versioned when the row
    was written. Then hashes of keys that are too long for an index.

    Returns:
        None if the number and types of the wire columns do not fit the catalog.
    """
    shown = [column for column in schema.columns if not column.hidden]
    period = [column for column in schema.columns if column.hidden]
    if schema.versioned and not any(column.period for column in schema.columns):
        period = list(ROW_PERIOD)
    for columns in ([*shown, *period], shown):
        extra = wire[len(columns) :]
        types = [column.type for column in wire[len(shown) : len(columns)]]
        if (
            len(wire) >= len(columns)
            and len(extra) <= schema.hash_keys
            and all(column.type == ColumnType.LONGLONG for column in extra)
            and types == [ColumnType.TIMESTAMP2] * len(types)
        ):
            return [*columns, *map(_hash, range(1, len(extra) + 1))]
    return None


def _hash(number: int) -> ColumnSchema:
    return ColumnSchema(
        name=f"DB_ROW_HASH_{number}", data_type="bigint", column_type="bigint unsigned", unsigned=True, hidden=True
    )


def disagreement(column: ColumnDef, schema: ColumnSchema) -> str:
    """Return the attribute in which the wire and the catalog differ, such as "type".

    Returns:
        An empty string if they agree in every attribute that both have.
    """
    code = ColumnType(column.type)
    if type_named(PREPARED.get(code, code), schema.data_type) is None:
        return "type"
    if _length(column, schema):
        return "length"
    if code == ColumnType.NEWDECIMAL and (column.precision, column.scale) != (schema.precision, schema.scale):
        return "precision"
    if code in _FRACTIONAL and schema.fsp is not None and column.fsp != schema.fsp:
        return "number of digits"
    if column.unsigned is not None and code != ColumnType.YEAR and column.unsigned != schema.unsigned:
        return "sign"
    return "character set" if _charset(column, schema) else ""


def _length(column: ColumnDef, schema: ColumnSchema) -> bool:
    labels = len(schema.labels or ())
    expected: int | None = None
    match column.type:
        case ColumnType.BIT:
            expected = schema.precision
        case ColumnType.ENUM:
            expected = 1 if labels < 256 else 2
        case ColumnType.SET:
            expected = (labels + 7) // 8 if labels <= 32 else 8
        case ColumnType.BLOB | ColumnType.BLOB_COMPRESSED if schema.octets is not None:
            expected = (schema.octets.bit_length() + 7) // 8
        case ColumnType.STRING | ColumnType.VARCHAR:
            expected = NAMES[schema.data_type].logged or schema.octets
        case ColumnType.VARCHAR_COMPRESSED if schema.octets is not None:
            expected = schema.octets + 1  # the header byte of a compressed value
    return expected is not None and column.length != expected


def _charset(column: ColumnDef, schema: ColumnSchema) -> bool:
    if column.collation is None or column.type == ColumnType.GEOMETRY:
        return False
    # In the catalog, only ENUM and SET columns have the set `binary`; columns without text have None.
    if schema.charset in (None, "binary") or column.collation == BINARY:
        return (column.collation == BINARY) != (schema.charset in (None, "binary"))
    try:
        return charset_of(column.collation) != charset_named(schema.charset)
    except UnsupportedColumnError:
        return False  # the plan refuses it, if the column is wanted


# Columns are named @1, @2, … as in mariadb-binlog. Facts that the stream lacks get these defaults: integers are
# signed, and the labels of ENUM and SET are their numbers, as text. CHAR, VARCHAR and TEXT cannot be distinguished
# from BINARY, VARBINARY and BLOB. With `text="utf8"` all are read as UTF-8 text; invalid bytes follow the policy for
# invalid text. With `text="bytes"` all are read as bytes, which is exact: the caller decides which values are text.
# Temporal columns in the old format cannot be decoded: the stream does not give their width.


UnnamedText = Literal["utf8", "bytes"]


def unnamed_schema(table_map: TableMapEvent, text: UnnamedText = "utf8") -> TableSchema:
    """Make a definition from a table map alone, with the names, signs and collations that the table map has."""
    return TableSchema(
        database=table_map.database,
        table=table_map.table,
        columns=tuple(_column(column, f"@{number}", text) for number, column in enumerate(table_map.columns, 1)),
        primary_key=table_map.primary_key,
    )


def _column(column: ColumnDef, name: str, text: UnnamedText) -> ColumnSchema:
    code = PREPARED.get(column.type, column.type)
    type_ = type_of_wire(code, binary=text == "bytes" if column.collation is None else column.collation == BINARY)
    if type_ is None:
        raise UnsupportedColumnError(
            f"Column {name} has the type code {column.type}, which cannot be decoded.",
            hint="Leave the table out of the selection; MySQL's own types are not supported.",
        )
    data_type = type_.names[min(column.length, 4) - 1 if code == ColumnType.BLOB else 0].name
    charset = _charset_name(column) if KINDS[type_.kind].sql is Sql.CHARACTERS else None
    return ColumnSchema(
        name=column.name or name,
        data_type=data_type,
        column_type=data_type,
        nullable=column.nullable,
        unsigned=bool(column.unsigned),
        charset=charset,
        labels=_numbers(column) if column.labels is None else None,
        octets=_octets(column),
        precision=column.precision if column.type == ColumnType.NEWDECIMAL else _bits(column),
        scale=column.scale if column.type == ColumnType.NEWDECIMAL else None,
        fsp=column.fsp if column.type in _FRACTIONAL else None,
        key=column.is_key,
    )


def _charset_name(column: ColumnDef) -> str:
    if column.collation is None:
        return "utf8mb4"
    if column.collation == BINARY:
        return "binary"
    try:
        return charset_of(column.collation).name
    except UnsupportedColumnError:
        return "utf8mb4"  # the plan uses the collation, and refuses it if the column is read


def _numbers(column: ColumnDef) -> tuple[str, ...] | None:
    """Return numbers as labels, as many as the width of the column allows."""
    if column.type == ColumnType.ENUM:
        return tuple(map(str, range(1, 1 << 8 * column.length)))
    return tuple(map(str, range(1, 8 * column.length + 1))) if column.type == ColumnType.SET else None


def _octets(column: ColumnDef) -> int | None:
    """Return the bytes of the longest value, in the catalog's unit."""
    match column.type:
        case ColumnType.STRING | ColumnType.VARCHAR:
            return column.length
        case ColumnType.VARCHAR_COMPRESSED:
            return column.length - 1  # the metadata includes the header byte of a compressed value
        case ColumnType.BLOB | ColumnType.BLOB_COMPRESSED:
            return (1 << 8 * column.length) - 1
    return None


def _bits(column: ColumnDef) -> int | None:
    return column.length if column.type == ColumnType.BIT else None
