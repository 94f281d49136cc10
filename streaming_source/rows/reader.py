"""The work of a Spark task: from a range of a relay log to RecordBatches.

`read_changes` takes a partition and the `ReadPlan` of the pickled reader. The function is stateless, and runs again at
every retry and action. The same partition always gives the same rows in the same order.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ReplicaError
from replica.native.compiling.ahead import COMPILING
from streaming_source.selection.pushed_filters import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.decode import RangeDecoder, Walked
    from replica.rows.scan.xa import CarriedGroup, XaGroup
    from replica.schema.known_tables import TableName
    from streaming_source.rows.change_rows import RangeFacts, RowMemory
    from streaming_source.rows.partition import (
        CatalogChanges,
        ChangePartition,
        ChangeRange,
        GroupBounds,
        RangeChoice,
        ReadRows,
        RowBounds,
    )
    from streaming_source.rows.read_plan import ReadPlan
# Batches have 4 to 16 K rows or about 2 MB, and exactly the query's schema. Numba and pyarrow are imported when the
# first partition is read, because every forked worker pays for its imports.


BATCH_ROWS = 16_384
"""Rows of a batch. Batches of 1000 rows halve Spark's rate, and larger batches than this exceed the CPU cache."""


class RecordBatches:
    """Converter of the decoder's batches to the batches of a query."""

    def __init__(self, plan: ReadPlan) -> None:
        from streaming_source.rows import change_rows

        self._server = plan.server
        self._tables = plan.tables
        self._schema = _arrow_schema(plan)
        self._columns = change_rows.FLAT if plan.shape == "flat" else change_rows.ENVELOPE
        self._numbers = change_rows.numbers_of(self._schema)
        self._memory = _memory_of(plan)

    def facts(self, file: str, data: memoryview, read: ReadRows | None = None) -> RangeFacts:
        from streaming_source.rows.change_rows import RangeFacts

        return RangeFacts(self._server, file, data, read)

    def choice(
        self,
        data: memoryview,
        *,
        checksum: bool,
        carried: Sequence[CarriedGroup] = (),
        bounds: GroupBounds | None = None,
        rows: Sequence[RowBounds] = (),
    ) -> RangeChoice:
        from streaming_source.rows.partition import RangeChoice

        statements = None
        if self._tables.include_ddl:
            from streaming_source.rows.statements import DdlRows

            statements = DdlRows(self._tables, data, checksum=checksum, carried=carried)
        return RangeChoice(self._tables, statements, bounds, rows)

    def batches(
        self, decoded: Iterable[ChangeBatch], facts: RangeFacts, choice: RangeChoice
    ) -> Iterator[pa.RecordBatch]:
        """Yield the decoder's batches without rows that are not needed, with statements between them."""
        from replica.rows.types.arrow_arrays import array_of

        for changes in decoded:
            batch, wanted, done = self._batch(changes, facts, self._memory), choice.rows(changes), 0
            for row, statements in [*choice.before(changes), (changes.rows, None)]:
                part = batch.slice(done, row - done) if (done, row) != (0, batch.num_rows) else batch
                if wanted is not None:
                    part = part.filter(array_of(wanted[done:row]))
                if part.num_rows:
                    yield part
                if statements is not None:
                    yield self._statements(statements, facts)
                done = row
        for statements in choice.rest():
            yield self._statements(statements, facts)

    def _statements(self, statements: ChangeBatch, facts: RangeFacts) -> pa.RecordBatch:
        from streaming_source.rows.change_rows import RowMemory

        return self._batch(statements, facts, RowMemory())  # new memory, because the surrounding batch is in use

    def _batch(self, changes: ChangeBatch, facts: RangeFacts, memory: RowMemory) -> pa.RecordBatch:
        from streaming_source.rows.change_rows import ChangeRows

        return ChangeRows(changes, facts, self._numbers, memory).record_batch(self._schema, self._columns)


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to this project's errors."""
    try:
        yield
    except ReplicaError as error:
        error.add_note(note)
        raise


@cache
def exempt_imports_from_collection() -> None:
    """Exempt all imported objects from garbage collection, once per process.

    Spark's worker collects garbage after every task. Walking the objects of numba takes 80 ms each time, three times as
    long as decoding a partition. (`gc.get_freeze_count()` walks them, too: 15 ms.)
    """
    gc.collect()
    gc.freeze()


_schemas: list[tuple[Any, pa.Schema]] = []


def _arrow_schema(plan: ReadPlan) -> pa.Schema:
    """Return the Arrow schema of a query. It is cached, because making it takes a millisecond."""
    from streaming_source.schema.row_schema import arrow_schema

    key = (plan.shape, plan.columns, plan.schema, plan.wide_sequence)
    if not (_schemas and _schemas[0][0] == key):
        _schemas[:] = [(key, arrow_schema(plan.spark_schema()))]
    return _schemas[0][1]


_memories: list[tuple[ReadPlan, RowMemory]] = []


def _memory_of(plan: ReadPlan) -> RowMemory:
    """Return the memory of a query's batches, cached as in `decoder_of`."""
    from streaming_source.rows.change_rows import RowMemory

    if not (_memories and _memories[0][0] == plan):
        _memories[:] = [(plan, RowMemory())]
    return _memories[0][1]


_decoders: list[tuple[ReadPlan, RangeDecoder]] = []


def decoder_of(plan: ReadPlan) -> RangeDecoder:
    """Return the decoder of a query.

    The decoder of the last task's query is cached, with compiled tables and memory.
    """
    if not (_decoders and _decoders[0][0] == plan):
        _decoders[:] = [(plan, _new_decoder(plan))]
    return _decoders[0][1]


def _new_decoder(plan: ReadPlan) -> RangeDecoder:
    from replica.rows.decode.decode import DecodeOptions, RangeDecoder
    from replica.rows.types.types import OutputColumn
    from streaming_source.schema.row_schema import arrow_type, spark_type

    options = DecodeOptions(
        shape=plan.shape,
        invalid_dates=plan.invalid_dates,
        invalid_text=plan.invalid_text,
        geometry=plan.geometry,
        batch_rows=BATCH_ROWS,
        want_sql=plan.include_sql,
        lenient=plan.lenient,
        reuse_buffers=True,  # Spark has written a batch to its socket when it asks for the next
    )
    output = None
    if plan.columns is not None:
        output = [OutputColumn(c.name, arrow_type(spark_type(c.type)), c.type) for c in plan.columns]
    return RangeDecoder(plan.tables, options, output)


INTERPRETED_TASK_BYTES: Final = 256 << 10
"""Largest partition in bytes that interpreted kernels decode instead of waiting for the compiler, which takes some
seconds. While the compiler runs, batches are smaller than this limit, unless a single transaction is larger.
"""


class OpenRange(NamedTuple):
    """Range whose decoding has begun: its batches, and the choice of their rows."""

    decoded: Iterable[ChangeBatch]
    choice: RangeChoice
    made: RecordBatches
    facts: RangeFacts


def read_changes(partition: ChangePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the row changes of one partition of a stream.

    Raises:
        ReplicaError: any error of the decoder, with a note that names the partition.
    """
    interpret_little(partition)
    for part in partition.ranges:
        with noted(f"while reading {part.place}"):
            opened = open_range(part, plan)
            yield from opened.made.batches(opened.decoded, opened.facts, opened.choice)
    exempt_imports_from_collection()


def interpret_little(partition: ChangePartition) -> None:
    """Interpret the kernels for a small partition if they are not compiled yet."""
    COMPILING.interpret = partition.size <= INTERPRETED_TASK_BYTES


def open_range(part: ChangeRange, plan: ReadPlan, walked: Walked | None = None) -> OpenRange:
    """Begin to decode a range of a partition.

    Args:
        part: the range.
        plan: the plan of the query.
        walked: gets all row events of the range.
    """
    tables = tables_in(part.catalog, plan)
    if part.read is not None:
        tables = _reading(tables)
    made, data = RecordBatches(tables), part.data()
    facts = made.facts(part.file, data, part.read)
    lost: list[XaGroup] | None = [] if part.lenient else None
    carried = part.carried_groups()
    choice = made.choice(data, checksum=part.checksum, carried=carried, bounds=part.bounds, rows=part.rows)
    decoded: Iterable[ChangeBatch] = decoder_of(tables).decode(
        data,
        checksum=part.checksum,
        carried=carried,
        unprepared=lost,
        only=choice.groups,
        ends=part.ends,
        delivered=part.delivered,
        walked=walked,
    )
    if part.read is not None:
        from streaming_source.rows.read_plan import read_rows  # imports numpy, as the decoder does

        decoded = read_rows(decoded, part.read)
    return OpenRange(decoded, choice, made, facts)


def _reading(plan: ReadPlan) -> ReadPlan:
    """Return the plan for snapshot rows, which are delivered whichever kinds of changes are selected."""
    return replace(plan, tables=replace(plan.tables, operations=OPERATIONS, skip_unchanged=False, include_ddl=False))


def tables_in(changes: CatalogChanges, plan: ReadPlan) -> ReadPlan:
    """Return the plan with the definitions of the tables in a range."""
    if not changes:
        return plan
    catalog = {**plan.tables.catalog, **dict(changes)}
    known = {name: table for name, table in catalog.items() if table is not None}
    return replace(plan, tables=replace(plan.tables, catalog=known))


# `tables_with_other_keys` takes the partitions of a batch's changes as tasks get them. A task that met a table with
# another key would end the query, again at each retry. So the planner checks the partitions before it passes them on.


def tables_with_other_keys(partitions: Iterable[ChangePartition], plan: ReadPlan) -> set[TableName]:
    """Return the tables whose rows in these partitions have another key than their delivered rows."""
    from replica.rows.decode.open_rows import unfit_keys  # imports the row decoder

    found: set[TableName] = set()
    for partition in partitions:
        for part in partition.ranges:
            if part.delivered is not None:
                tables = tables_in(part.catalog, plan).tables
                carried = part.carried_groups()
                found |= unfit_keys(
                    part.data(), tables, part.delivered, checksum=part.checksum, carried=carried, ends=part.ends
                )
    return found
