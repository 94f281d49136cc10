"""A table map met with what is known of its table and with what is asked for: one `RowLayout` per distinct table map.

In: a `TableMapEvent`, the catalog's `TableSchema` (optional), the output columns (optional). Out: a plan per wire
column and, per output column, the wire column that feeds it. Columns meet by name. An output column that the wire lacks
is NULL in every row; a wire column that was not asked for is stepped over, even one that could not be decoded. The
server's hashes of long keys are put out nowhere. A column whose type changed so that values would be lost, or a catalog
that has other columns than the wire, is a SchemaError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.constants import ColumnType
from replica.rows.tables.match import catalog_columns
from replica.rows.tables.plan import ColumnPlan, plan_column, skip_column
from replica.rows.tables.widening import widened
from replica.rows.types.kinds import Kind
from replica.rows.types.types import OutputColumn
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.column_def import ColumnDef
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.types.types import ValuePolicy
    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import ColumnSchema, TableSchema

ABSENT = -1
"""The mark in `RowLayout.sources` that no column of the wire feeds this output column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """The layout of one table. `columns[i]` reads wire column i; `sources[j]` is the wire column that feeds
    `outputs[j]`, or ABSENT.
    """

    database: str
    table: str
    columns: tuple[ColumnPlan, ...]
    outputs: tuple[OutputColumn, ...]
    sources: tuple[int, ...]

    @property
    def shown(self) -> tuple[ColumnPlan, ...]:
        """The columns that a reader of all columns sees."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The name, per wire column, that it is put out under, None where it was not asked for."""
        return tuple(None if slot == ABSENT else self.outputs[slot].name for slot in self.slots)

    @property
    def versioned(self) -> bool:
        """Whether history rows can be told from current ones."""
        return any(column.row_end for column in self.columns)

    @property
    def slots(self) -> tuple[int, ...]:
        """The other way round: per wire column the output column it feeds, or ABSENT."""
        found = [ABSENT] * len(self.columns)
        for output, source in enumerate(self.sources):
            if source != ABSENT:
                found[source] = output
        return tuple(found)


def compile_layout(
    table_map: TableMapEvent,
    schema: TableSchema | None,
    output: Sequence[OutputColumn] | None,
    policy: ValuePolicy,
    *,
    shown: ColumnMatcher | None = None,
) -> RowLayout:
    """Make the layout of one table map. `output` None: all columns are put out, in wire order; empty: none is.

    `shown`: without `output`, put out only columns of these names.
    """
    name = f"{table_map.database}.{table_map.table}"
    known = catalog_columns(table_map, schema)
    names = [c.name or (k.name if k else None) for c, k in zip(table_map.columns, known, strict=True)]
    wanted = None if output is None else {column_key(column.name) for column in output}
    hidden = hidden_columns(table_map.columns, known)
    columns = []
    for position, (column, schema_column, column_name) in enumerate(zip(table_map.columns, known, names, strict=True)):
        if position in hidden.hashes:
            plan = skip_column(column, column_name or "", hidden=True)
        elif wanted is not None and (not wanted or (column_name is not None and column_key(column_name) not in wanted)):
            plan = skip_column(column, column_name or "", schema_column, position=position, table=name)
        elif output is None and shown is not None and column_name is not None and not shown.fits(column_name):
            plan = skip_column(column, column_name, schema_column, hidden=True, position=position, table=name)
        else:
            plan = plan_column(column, schema_column, policy, position=position, table=name)
        columns.append(replace(plan, row_end=True) if position == hidden.row_end else plan)
    put_out = (c for c in columns if not c.hidden)
    outputs = tuple(output if output is not None else (OutputColumn(c.name, c.arrow, c.spark) for c in put_out))
    by_name = {column_key(plan.name): index for index, plan in enumerate(columns) if plan.kind != Kind.OPAQUE}
    sources = tuple(by_name.get(column_key(column.name), ABSENT) for column in outputs)
    for out, source in zip(outputs, sources, strict=True):
        if source != ABSENT and columns[source].arrow != out.arrow:
            columns[source] = widened(columns[source], out, name)
    return RowLayout(
        database=table_map.database, table=table_map.table, columns=tuple(columns), outputs=outputs, sources=sources
    )


# The columns of a table map that the server added by itself: the hashes of long keys, and the end of the row period.
#
# In: a `TableMapEvent` and what the catalog says of each of its columns. Out: the numbers of hash columns, which no
# one ever sees, and of the column by which history rows are told from current ones. The catalog's word counts where
# there is one; from the stream alone the names decide, together with place and type: `DB_ROW_HASH_n` as last columns
# (the server's make_unique_key_name keeps them free of the user's names), and before them `row_start` and `row_end`,
# both TIMESTAMP(6) NOT NULL, as WITH SYSTEM VERSIONING adds them. A period with names of its own is known from the
# catalog only.

HASH_NAME: Final = re.compile(r"DB_ROW_HASH_\d+")
PERIOD_DIGITS: Final = 6  # a period in whole seconds does not exist


class Hidden(NamedTuple):
    hashes: frozenset[int]
    row_end: int | None


def hidden_columns(columns: Sequence[ColumnDef], known: Sequence[ColumnSchema | None]) -> Hidden:
    """Find what the server added to a table's columns; `known[i]` is the catalog's word on `columns[i]`."""
    last = len(columns)
    while last and _is_hash(columns[last - 1], known[last - 1]):
        last -= 1
    return Hidden(frozenset(range(last, len(columns))), _row_end(columns, known, last))


def _is_hash(column: ColumnDef, known: ColumnSchema | None) -> bool:
    name = known.name if known is not None and known.hidden else column.name if known is None else None
    return column.type == ColumnType.LONGLONG and name is not None and HASH_NAME.fullmatch(name) is not None


def _row_end(columns: Sequence[ColumnDef], known: Sequence[ColumnSchema | None], last: int) -> int | None:
    for index, schema in enumerate(known):
        if schema is not None and schema.period == "end" and _can_be_period(columns[index]):
            return index
    if last < 2 or known[last - 1] is not None or known[last - 2] is not None:
        return None
    pair = columns[last - 2 : last]
    named = [column.name for column in pair] == ["row_start", "row_end"]
    return last - 1 if named and all(_can_be_period(c) and not c.nullable for c in pair) else None


def _can_be_period(column: ColumnDef) -> bool:
    return column.type == ColumnType.TIMESTAMP2 and column.fsp == PERIOD_DIGITS
