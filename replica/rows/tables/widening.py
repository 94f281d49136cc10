"""Widening of column types: a column may change to a type that holds every value of the old type.

An integer may become a wider integer, and a DECIMAL may get more digits before the point. No other change is a
widening: readers treat integers and DECIMALs differently, a FLOAT shows other digits as a DOUBLE, and text stays text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from replica.errors import SchemaError
from replica.rows.types.entry import Widens
from replica.rows.types.registry import KINDS

if TYPE_CHECKING:
    from replica.rows.tables.plan import ColumnPlan
    from replica.rows.types.types import OutputColumn

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
