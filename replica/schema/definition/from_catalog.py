"""Conversion of a catalog definition to the definition that a later ALTER changes.

`table_of` makes a `Table` whose `schema` is the given `TableSchema`. The catalog lacks the columns of unique keys that
are kept as hashes, so each is assumed to span all columns. No ALTER of a column removes such a key, and the table may
seem to have more of them than it has. A declaration that no server prints is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.rows.types.entry import Parentheses
from replica.rows.types.registry import NAMES
from replica.schema.definition.column import Column, width_of
from replica.schema.definition.definition import PRIMARY, Encoding, Key, Table

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema, TableSchema

_DECLARED: Final = re.compile(r"[a-z0-9 ]+?(?:\((?P<digits>[0-9, ]+)\))?(?P<rest> .*)?", re.DOTALL)
_COUNTED: Final = frozenset(
    name.name for name in NAMES.values() if name.parentheses in (Parentheses.LENGTH, Parentheses.LENGTH_OR_1)
)
_COMPRESSED: Final = "COMPRESSED*/"


def table_of(schema: TableSchema) -> Table:
    """Return the definition of a table from the catalog, or from an earlier definition.

    Raises:
        SchemaError: No server prints a declaration like that of one of the columns.
    """
    shown = [column for column in schema.columns if not column.hidden]
    parts = tuple((column.name, None) for column in shown)
    keys = [Key(name=f"#{number}", parts=parts, hashed=True) for number in range(schema.hash_keys)]
    if schema.primary_key:
        parts = tuple((schema.columns[index].name, None) for index in schema.primary_key)
        keys.insert(0, Key(name=PRIMARY, parts=parts, primary=True))
    return Table(
        columns=tuple(map(_column, shown)),
        keys=tuple(keys),
        encoding=encoding_of(schema.collation),
        versioned=schema.versioned,
    )


def encoding_of(collation: str | None) -> Encoding:
    """Return the encoding of a collation, or of a character set, by name."""
    if collation is None:
        return Encoding(None)
    charset, _, rest = collation.partition("_")
    return Encoding({"utf8": "utf8mb3"}.get(charset, charset), collation if rest else None)


def _column(schema: ColumnSchema) -> Column:
    digits: tuple[int, ...] = ()
    rest = ""
    if schema.labels is None:
        declared = _DECLARED.fullmatch(schema.column_type)
        if declared is None:
            raise SchemaError(
                f"Column {schema.name} is declared as {schema.column_type}, which is not a type that a server prints."
            )
        digits = tuple(int(part) for part in (declared["digits"] or "").split(",") if part)
        rest = declared["rest"] or ""
    digits = digits or _digits(schema)
    counted = schema.data_type in _COUNTED
    return Column(
        name=schema.name,
        data_type=schema.data_type,
        length=digits[0] if counted and digits else None,
        digits=() if counted else digits,
        unsigned=schema.unsigned,
        zerofill=" zerofill" in rest,
        charset=schema.charset,
        collation=schema.collation,
        labels=schema.labels,
        nullable=schema.nullable,
        compressed=_COMPRESSED in rest,
        period=schema.period,
        comment=schema.comment,
        computed=schema.computed,
    )


def _digits(schema: ColumnSchema) -> tuple[int, ...]:
    """Return the numbers in parentheses after a type, from the catalog's attributes, if the declaration omits them."""
    if schema.data_type == "decimal":
        return (schema.precision or 0, schema.scale or 0)
    if schema.data_type == "bit":
        return (schema.precision or 1,)
    if schema.data_type in ("char", "varchar", "binary", "varbinary") and schema.octets is not None:
        return (schema.octets // width_of(schema.charset),)
    return (schema.fsp,) if schema.fsp else ()
