"""A table as the catalog describes it -> the definition that a later ALTER changes.

In: a `TableSchema`. Out: the `Table` that makes the same `TableSchema` again. What the catalog leaves out only matters
for counts: unique keys that are kept as hashes are taken to span all columns, so that no ALTER of a column makes one
vanish, and a table may be thought to have more of them than it has. Refused: a declaration that no server prints.
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
    """Return the definition of a table as the catalog, or an earlier definition, describes it.

    Raises:
        SchemaError: a column's declaration is none that a server prints.
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
    """Return the encoding that a collation's name, or a character set's, stands for."""
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
            raise SchemaError(f"Column {schema.name} is declared as {schema.column_type}, which no server prints.")
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
    """Return the numbers in parentheses behind a type as rows have them, where the declaration leaves them out."""
    if schema.data_type == "decimal":
        return (schema.precision or 0, schema.scale or 0)
    if schema.data_type == "bit":
        return (schema.precision or 1,)
    if schema.data_type in ("char", "varchar", "binary", "varbinary") and schema.octets is not None:
        return (schema.octets // width_of(schema.charset),)
    return (schema.fsp,) if schema.fsp else ()
