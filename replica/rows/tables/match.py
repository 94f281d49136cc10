"""The columns of the catalog that describe the columns of a table map.

In: a `TableMapEvent` and the catalog's `TableSchema`. Out: per wire column its `ColumnSchema`, or None. The catalog
tells how the table looks now, the row may be older. So everything that both sides tell is compared: type, widths,
digits, signedness, character set. Where the wire has names, a catalog column that disagrees is set aside, because the
row describes itself. Without names columns meet by position, and one disagreement is a SchemaError: the position can
no longer be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.charset import BINARY, charset_named, charset_of
from replica.protocol.constants import ColumnType
from replica.rows.tables.plan import PREPARED
from replica.rows.types.registry import NAMES
from replica.rows.types.types import type_named
from replica.schema.table import ROW_PERIOD, ColumnSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.column_def import ColumnDef
    from replica.protocol.table_map import TableMapEvent
    from replica.schema.table import TableSchema

_TEMPORAL = (ColumnType.DATETIME2, ColumnType.TIMESTAMP2, ColumnType.TIME2)
_HINT = "Set binlog_row_metadata=FULL on the primary, so that each row brings its own definition."
_STALE = "the table was changed after the rows were written, or the catalog was read before the change."


def catalog_columns(table_map: TableMapEvent, schema: TableSchema | None) -> list[ColumnSchema | None]:
    """Return, per wire column, what the catalog says of it; None where it says nothing that can be believed."""
    if schema is None:
        return [None] * len(table_map.columns)
    if all(column.name is not None for column in table_map.columns):
        by_name = {column.name.casefold(): column for column in schema.columns}
        candidates = [by_name.get((column.name or "").casefold()) for column in table_map.columns]
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
                f"in the binlog is another: {_STALE}",
                hint=_HINT,
            )
    return list(expected)


def _expected(wire: Sequence[ColumnDef], schema: TableSchema) -> list[ColumnSchema] | None:
    """Return the catalog's columns as the wire has them: with the hidden ones that are there; None if they cannot be so
    many.

    Behind the declared columns stand the row period, if the table is versioned and was so when the row was written, and
    hashes of keys too long for an index.
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
    """Return what the wire and the catalog tell differently, in a word; '' if they agree as far as both tell."""
    code = ColumnType(column.type)
    if type_named(PREPARED.get(code, code), schema.data_type) is None:
        return "type"
    if _length(column, schema):
        return "length"
    if code == ColumnType.NEWDECIMAL and (column.precision, column.scale) != (schema.precision, schema.scale):
        return "precision"
    if code in _TEMPORAL and schema.fsp is not None and column.fsp != schema.fsp:
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
            expected = schema.octets + 1  # the byte that says how the value is compressed
    return expected is not None and column.length != expected


def _charset(column: ColumnDef, schema: ColumnSchema) -> bool:
    if column.collation is None or column.type == ColumnType.GEOMETRY:
        return False
    if schema.charset in (None, "binary") or column.collation == BINARY:  # ENUM and SET are of the set binary, as text
        return (column.collation == BINARY) != (schema.charset in (None, "binary"))
    try:
        return charset_of(column.collation) != charset_named(schema.charset)
    except UnsupportedColumnError:
        return False  # the plan refuses it, if the column is wanted
