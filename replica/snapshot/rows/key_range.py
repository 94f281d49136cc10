"""Conditions in SQL on the keys of a table: the rows behind a kept key, and those up to it.

In: a table's definition, its key, and a key as an offset keeps it. Out: text for a WHERE, of which the optimizer makes
a range of the index: (a > x) OR (a = x AND b > y). A comparison of rows, (a, b) > (x, y), would be a scan of the table.
For ENUM no server makes a range of > and <, so that the numbers of the labels on that side stand there in a list. For
SET there would be too many: a table whose key has one is scanned from its first row for every chunk.

Measured on 10.5, 10.11 and 11.8 with EXPLAIN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.snapshot.rows.kept_key import key_literals
from replica.snapshot.rows.select_list import quoted

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.rows.row_block import TableKey


def behind(schema: TableSchema, key: TableKey, kept: bytes) -> str:
    """Return the condition on rows whose key is above the kept one."""
    return _terms(schema, key, kept, above=True, same=False)


def up_to(schema: TableSchema, key: TableKey, kept: bytes) -> str:
    """Return the condition on rows whose key is the kept one, or below it."""
    return _terms(schema, key, kept, above=False, same=True)


def _terms(schema: TableSchema, key: TableKey, kept: bytes, *, above: bool, same: bool) -> str:
    columns = [schema.columns[number] for number in key.columns]
    literals = key_literals(schema, key, kept)
    equal = [f"{quoted(column.name)} = {literal}" for column, literal in zip(columns, literals, strict=True)]
    terms = [
        [*equal[:number], _beyond(column, literal, above=above)]
        for number, (column, literal) in enumerate(zip(columns, literals, strict=True))
    ]
    if same:
        terms.append(equal)
    return " OR ".join(f"({' AND '.join(term)})" for term in terms)


def _beyond(column: ColumnSchema, literal: str, *, above: bool) -> str:
    if column.data_type != "enum":
        return f"{quoted(column.name)} {'>' if above else '<'} {literal}"
    number = int(literal)
    # 0 is the error value, which stands before the first label.
    others = range(number + 1, len(column.labels or ()) + 1) if above else range(number)
    return f"{quoted(column.name)} IN ({', '.join(map(str, others))})" if others else "FALSE"
