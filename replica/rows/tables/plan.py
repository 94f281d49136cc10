"""Plan of a column: how to read its values from a row image, and which type they become.

`plan_column` makes a `ColumnPlan` from the `ColumnDef` of a table map, the catalog's `ColumnSchema` and a
`ValuePolicy`. The stream takes precedence over the catalog, because it describes the row at hand. A fact that neither
source has is an error that names the setting to change. A catalog that contradicts the wire is an error too: nothing is
guessed. Compressed values and MySQL's JSON are planned in their plain form, with a length prefix of four bytes;
tables/layout.py chooses the functions that rewrite them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.charset import BINARY, Charset, charset_named, charset_of, labels_charset
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import value_extent
from replica.rows.types.entry import Widens
from replica.rows.types.kinds import Kind
from replica.rows.types.types import (
    KINDS,
    ValuePolicy,
    arrow_and_spark,
    refine,
    type_named,
    type_of_wire,
    types_of_code,
)
from replica.rows.types.values.numbers import decimals_of
from replica.rows.types.values.text import kind_of_charset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.types.entry import TypeEntry
    from replica.rows.types.types import OutputColumn
    from replica.schema.table import ColumnSchema

_FULL = "Set binlog_row_metadata=FULL on the primary, or give the connector access to the table's definition."
PREPARED: Mapping[int, ColumnType] = {
    ColumnType.VARCHAR_COMPRESSED: ColumnType.VARCHAR,
    ColumnType.BLOB_COMPRESSED: ColumnType.BLOB,
    ColumnType.JSON: ColumnType.JSON,
}
"""Wire types whose values are rewritten before decoders read them, and the type of the rewritten value."""
PREPARED_PREFIX = 4  # bytes of the length before a rewritten value

# Formats of servers before 10.1.2: bytes of a value by its number of fractional digits, which the binlog does not have.
_OLD_WIDTHS: Mapping[int, tuple[int, ...]] = {
    ColumnType.TIMESTAMP: (4, 5, 5, 6, 6, 7, 7),
    ColumnType.DATETIME: (8, 6, 6, 7, 7, 7, 8),
    ColumnType.TIME: (3, 4, 4, 5, 5, 5, 6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """Plan of one column.

    A value has `width` bytes, or, if `prefix` > 0, a length of `prefix` bytes and that many bytes.
    """

    name: str
    kind: Kind
    arrow: pa.DataType
    spark: str
    data_type: str = ""  # DATA_TYPE in information_schema; empty for a column that is not read
    declared: str = ""  # for messages: the declaration if it is known, else the registry's name of the type
    nullable: bool = True
    width: int = 0
    prefix: int = 0
    precision: int = 0  # DECIMAL: digits in all
    scale: int = 0  # DECIMAL: digits after the point
    decimals: int | None = None  # FLOAT, DOUBLE: digits after the point that it is rounded to
    fsp: int = 0  # fractional digits of a second
    length: int = 0  # bytes that PADDED_BYTES, UUID, INET4 and INET6 are padded to
    labels: tuple[str, ...] = ()
    charset: Charset | None = None
    key: bool = False
    hidden: bool = False  # never output
    widened: int = 0  # bytes of an integer in the output, if its output type is wider than its own
    row_end: bool = False  # the end of a versioned row's period: read even if it is not output


def plan_column(
    column: ColumnDef, schema: ColumnSchema | None, policy: ValuePolicy, *, position: int = 0, table: str = ""
) -> ColumnPlan:
    """Return the plan of one column of a table map.

    Args:
        column: The column in the table map.
        schema: The catalog's definition of the column, None if it is unknown.
        policy: How to convert values that Spark's types cannot hold.
        position: The position of the column, from 0, for messages.
        table: The table, for messages.

    Raises:
        SchemaError: Neither side has the name, signedness, character set or labels, or the catalog contradicts the
            wire.
        UnsupportedColumnError: The values cannot be decoded.
    """
    name = column.name or (schema.name if schema else None)
    where = f"Column {name or position + 1}" + (f" of table {table}" if table else "")
    if name is None:
        raise SchemaError(f"{where} has no known name.", hint=_FULL)
    type_ = _type(column, schema, where)
    declared = schema.column_type if schema else type_.declared
    unsigned = type_.unsigned is not None and _unsigned(column, schema, where)
    precision = column.length if column.type == ColumnType.BIT else column.precision
    kind = refine(type_, unsigned=unsigned, precision=precision, policy=policy)
    if column.type in _OLD_WIDTHS:
        _check_old_format(schema, where)
    charset = _charset(column, schema, where) if kind == Kind.TEXT else None
    width, prefix = (0, PREPARED_PREFIX) if column.type in PREPARED else _extent(column, schema)
    arrow, spark = arrow_and_spark(kind, column.precision, column.scale)
    is_rounded = schema is not None and kind in (Kind.FLOAT, Kind.DOUBLE) and not policy.stored_digits
    return ColumnPlan(
        name=name,
        data_type=type_.names[0].name,
        kind=kind_of_charset(charset) if charset else kind,
        arrow=arrow,
        spark=spark,
        declared=declared,
        nullable=column.nullable,
        width=width,
        prefix=prefix,
        precision=column.precision,
        scale=column.scale,
        decimals=decimals_of(declared) if is_rounded else None,
        fsp=column.fsp,
        length=column.length if column.type == ColumnType.STRING else 0,
        labels=_labels(column, schema, where) if kind in (Kind.ENUM, Kind.SET) else (),
        charset=charset,
        key=column.is_key or (schema is not None and schema.key),
    )


def skip_column(
    column: ColumnDef,
    name: str,
    schema: ColumnSchema | None = None,
    *,
    hidden: bool = False,
    position: int = 0,
    table: str = "",
) -> ColumnPlan:
    """Make a plan that only steps over a column.

    The wire gives the length of a value, except for the old temporal formats: their length comes from `schema`. Without
    `schema`, those columns are assumed to have no fractional digits, which is correct only if no column of the table is
    decoded. With `table` given, a missing length is a SchemaError.
    """
    if column.type in _OLD_WIDTHS and (schema is None or schema.fsp is None) and table:
        _check_old_format(None, f"Column {name or position + 1} of table {table}")
    width, prefix = _extent(column, schema)
    arrow, spark = arrow_and_spark(Kind.OPAQUE)
    return ColumnPlan(name=name, kind=Kind.OPAQUE, arrow=arrow, spark=spark, width=width, prefix=prefix, hidden=hidden)


def has_hidden_width(column: ColumnDef) -> bool:
    """Return True if the binlog does not give the width of a value: the old temporal formats."""
    return column.type in _OLD_WIDTHS


def _type(column: ColumnDef, schema: ColumnSchema | None, where: str) -> TypeEntry:
    code = PREPARED.get(column.type, column.type)
    entry = type_of_wire(code, binary=column.collation == BINARY)
    if entry is None:
        name = ColumnType(column.type).name if column.type in set(ColumnType) else "nameless"
        raise UnsupportedColumnError(
            f"{where} has the type code {column.type} ({name}), which is not in the type table.",
            hint="Leave the column out of the query's schema, or the table out of the selection.",
        )
    if schema is None:
        return entry
    named = type_named(code, schema.data_type)
    if named is not None:
        return named
    raise SchemaError(
        f"{where} is {types_of_code(code)[0].declared} in the binlog and {schema.column_type} in the catalog: "
        "the table was changed after the row was written, or the catalog was read too early.",
        hint="Set binlog_row_metadata=FULL on the primary, so that the binlog contains the column definitions.",
    )


def _unsigned(column: ColumnDef, schema: ColumnSchema | None, where: str) -> bool:
    if column.unsigned is not None:
        return column.unsigned
    if schema is None:
        raise SchemaError(f"{where} is signed or unsigned: neither the binlog nor the catalog says which.", hint=_FULL)
    return schema.unsigned


def _charset(column: ColumnDef, schema: ColumnSchema | None, where: str) -> Charset:
    if column.type == ColumnType.JSON:
        return charset_named("utf8mb4")
    try:
        if column.collation is not None:
            return charset_of(column.collation)
        if schema is not None and schema.charset is not None:
            return charset_named(schema.charset)
    except UnsupportedColumnError as error:
        raise UnsupportedColumnError(f"{where}: {error.message}", hint=error.hint) from None
    raise SchemaError(f"{where} has no known character set.", hint=_FULL)


def _labels(column: ColumnDef, schema: ColumnSchema | None, where: str) -> tuple[str, ...]:
    if column.labels is not None:
        binary = column.collation == BINARY
        charset = labels_charset(BINARY) if binary else _charset(column, schema, where)
        labels = tuple(charset.decode(label) for label in column.labels)
    elif schema is not None and schema.labels is not None:
        binary, labels = schema.charset == "binary", schema.labels
    else:
        raise SchemaError(f"{where} has labels that are neither in the binlog nor in the catalog.", hint=_FULL)
    damaged = [label for label in labels if binary and "\N{REPLACEMENT CHARACTER}" in label]
    if len(set(damaged)) < len(damaged):
        raise UnsupportedColumnError(
            f"{where} has the character set binary, and some of its labels differ only in bytes that are not UTF-8.",
            hint="Declare it again with its labels in a character set: ALTER TABLE … MODIFY … CHARACTER SET utf8mb4.",
        )
    return labels


def _check_old_format(schema: ColumnSchema | None, where: str) -> None:
    # The log does not give the number of digits of the old formats, and the width depends on that number.
    if schema is None or schema.fsp is None:
        raise SchemaError(
            f"{where} is in the old temporal format: its width depends on the digits, which are not in the binlog.",
            hint="Give the table's definition (dump and tail: --schema), or rebuild the table: ALTER TABLE … FORCE.",
        )
    if schema.fsp:
        raise UnsupportedColumnError(
            f"{where} is {schema.column_type} in the old temporal format, which the binlog does not describe.",
            hint="Set mysql56_temporal_format=ON and rebuild the table: ALTER TABLE … FORCE.",
        )


def _extent(column: ColumnDef, schema: ColumnSchema | None) -> tuple[int, int]:
    """Return (width, prefix): the bytes of every value, or the bytes of its length prefix."""
    if column.type in _OLD_WIDTHS:
        return _OLD_WIDTHS[column.type][schema.fsp if schema and schema.fsp else 0], 0
    return value_extent(column)


# An integer may become a wider integer, and a DECIMAL may get more digits before the point. No other change is a
# widening: readers treat integers and DECIMALs differently, a FLOAT shows other digits as a DOUBLE, and text stays
# text.


_WIDTHS: Final = {
    entry.spark: entry.arrow.bit_width // 8
    for entry in KINDS.values()
    if isinstance(entry.arrow, pa.DataType) and pa.types.is_integer(entry.arrow)
}
"""Size of Spark's integer types in bytes."""
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def fits(kind: str, into: str) -> bool:
    """Return True if the Spark type `into` holds every value of the Spark type `kind`, with the same representation."""
    if kind in _WIDTHS and into in _WIDTHS:
        return _WIDTHS[kind] <= _WIDTHS[into]
    narrow, wide = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(into)
    if narrow and wide:
        return int(narrow[1]) <= int(wide[1]) and narrow[2] == wide[2]
    return kind == into


def widened(plan: ColumnPlan, out: OutputColumn, table: str) -> ColumnPlan:
    """Return the plan that writes a column as a wider type.

    Raises:
        SchemaError: Values could be lost. The message names `table`.
    """
    if fits(plan.spark, out.spark) and KINDS[plan.kind].widens is not Widens.NEVER:
        width = _WIDTHS.get(out.spark, 0)
        return replace(plan, arrow=out.arrow, spark=out.spark, widened=width)
    raise SchemaError(
        f"Column {out.name} of table {table} is {plan.spark} in the binlog and {out.spark} in the query: "
        "the table was changed.",
        hint="If the query was loaded before the change, start it again with the same checkpoint. If it was loaded "
        "later, start a new checkpoint after the change, leave the column out (option columns), or read the table as "
        "VARIANT (tables).",
    )
