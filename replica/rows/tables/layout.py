"""Layout of the rows of one distinct table map: which wire column feeds each output column, and how to read it.

`compile_layout` makes a `RowLayout` from a `TableMapEvent`, the catalog's `TableSchema` and the output columns; the
last two are optional. Columns match by name. An output column that the wire lacks is NULL in every row. A wire column
that is not requested is skipped, even if its type cannot be decoded. The server's hashes of long keys are never output.
A type change that would lose values is a SchemaError, and so is a catalog whose columns differ from the wire's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from replica.protocol.compression import inflate_column
from replica.protocol.constants import MAX_EVENT_BYTES, ColumnType
from replica.protocol.mysql.binary_json import rewrite_json
from replica.protocol.rows.table_map import value_extent
from replica.rows.scan import records as r
from replica.rows.tables.match import catalog_columns
from replica.rows.tables.plan import PREPARED, ColumnPlan, plan_column, skip_column, widened
from replica.rows.types.kinds import Kind
from replica.rows.types.types import OutputColumn
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replica.protocol.rows.table_map import ColumnDef, TableMapEvent
    from replica.protocol.wire import Buffer
    from replica.rows.types.types import ValuePolicy
    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import ColumnSchema, TableSchema

    Unpack = Callable[[memoryview], Buffer]

ABSENT = -1
"""Marker in `RowLayout.sources`: no wire column feeds this output column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Layout of one table.

    Attributes:
        columns: Plans in wire order: `columns[i]` reads wire column i.
        outputs: The output columns.
        sources: Per output column, the wire column that feeds it, or ABSENT.
    """

    database: str
    table: str
    columns: tuple[ColumnPlan, ...]
    outputs: tuple[OutputColumn, ...]
    sources: tuple[int, ...]

    @property
    def shown(self) -> tuple[ColumnPlan, ...]:
        """Columns that a reader of all columns sees."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def names(self) -> tuple[str | None, ...]:
        """Output name of each wire column; None if the column is not requested."""
        return tuple(None if slot == ABSENT else self.outputs[slot].name for slot in self.slots)

    @property
    def versioned(self) -> bool:
        """True if history rows can be distinguished from current rows."""
        return any(column.row_end for column in self.columns)

    @property
    def slots(self) -> tuple[int, ...]:
        """Inverse of `sources`: per wire column, the output column that it feeds, or ABSENT."""
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
    """Make the layout of one table map.

    Args:
        table_map: The table map.
        schema: The catalog's definition, None if it is unknown.
        output: The output columns. None outputs all columns in wire order; an empty sequence outputs none.
        policy: How to convert values that Spark's types cannot hold.
        shown: Without `output`, the names of the columns to output.

    Raises:
        SchemaError: The catalog disagrees with the wire, or a type change would lose values.
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


# Columns that the server adds to a table: hashes of long keys, and the row period of a versioned table.
#
# The catalog decides if it has the column. Without the catalog, name, position and type decide. Hashes are the last
# columns, named `DB_ROW_HASH_n`; the server's make_unique_key_name avoids collisions with the user's names. Before them
# are `row_start` and `row_end`, both TIMESTAMP(6) NOT NULL, as WITH SYSTEM VERSIONING adds them. A period with other
# names is known only from the catalog.

HASH_NAME: Final = re.compile(r"DB_ROW_HASH_\d+")
PERIOD_DIGITS: Final = 6  # every row period has microseconds


class Hidden(NamedTuple):
    """Columns that the server added: the numbers of the hash columns, and of the end of the row period."""

    hashes: frozenset[int]
    row_end: int | None


def hidden_columns(columns: Sequence[ColumnDef], known: Sequence[ColumnSchema | None]) -> Hidden:
    """Find the columns that the server added; `known[i]` is the catalog's definition of `columns[i]`, or None."""
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


# A kernel needs the widths of all columns, also of those without a function, to step over a row image in its logged
# form. A column that is not read keeps its stored form, because its length suffices to skip it.


class StoredColumns:
    """The columns of one table to rewrite; empty, and false, for most tables.

    Attributes:
        unpack: Per column number, a function that converts a stored value to its plain form. The argument excludes the
            length prefix. The function raises ProtocolError for invalid bytes.
        widths: int64, per column: bytes of a value in the log, or minus the bytes of its length prefix.
        marks: uint8, per column: 1 for a column to rewrite.
    """

    def __init__(self, columns: Sequence[ColumnDef], plans: Sequence[ColumnPlan]) -> None:
        self.unpack: Mapping[int, Unpack] = {
            number: _unpack(column)
            for number, (column, plan) in enumerate(zip(columns, plans, strict=True))
            if column.type in PREPARED and plan.kind != Kind.OPAQUE
        }
        self.widths = np.array([-plan.prefix if plan.prefix else plan.width for plan in plans], np.int64)
        self.marks = np.zeros(len(plans), np.uint8)
        for number in self.unpack:
            self.widths[number] = -value_extent(columns[number])[1]
            self.marks[number] = 1

    def __bool__(self) -> bool:
        return bool(self.unpack)


def _unpack(column: ColumnDef) -> Unpack:
    if column.type == ColumnType.JSON:
        return rewrite_json
    # The length of a compressed VARCHAR in the log includes the header byte of a compressed value.
    longest = column.length - 1 if column.type == ColumnType.VARCHAR_COMPRESSED else (1 << (8 * column.length)) - 1
    return partial(inflate_column, limit=min(longest, MAX_EVENT_BYTES))


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The definition that decodes the rows of a selected table, and the selection of its rows.

    Attributes:
        schema: The catalog's definition, if the stream does not describe the table completely.
        operations: The selected operations, one bit 1 << OP_* each.
        delivered: The selected operations that a filter keeps. Filtered rows are not delivered, but the column `last`
            has the values that it has without the filter.
        columns: The names that VARIANT contains; None for all.
        skip_unchanged: True to skip updates that change no column that is read.
    """

    schema: TableSchema | None = None
    operations: int = r.ALL_OPERATIONS
    delivered: int = r.ALL_OPERATIONS
    columns: ColumnMatcher | None = None
    skip_unchanged: bool = False


class TableResolver(Protocol):
    """Interface that decides, per distinct table map, whether its rows are selected."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition to read the table with, or None to skip the table."""
