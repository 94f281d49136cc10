"""The work of every task, whatever the source of its bytes: the decoder of its query, and the RecordBatches for Spark.

Batches have 4 to 16 K rows or about 2 MB, and exactly the query's schema. Numba and pyarrow are imported when the first
partition is read, because every forked worker pays for its imports.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.decode import RangeDecoder
    from replica.rows.scan.xa import CarriedGroup
    from streaming_source.rows.change_rows import RangeFacts
    from streaming_source.rows.partition import GroupBounds, ReadRows, RowBounds
    from streaming_source.rows.range_choice import RangeChoice
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.rows.row_memory import RowMemory

BATCH_ROWS = 16_384
"""Rows of a batch. Batches of 1000 rows halve Spark's rate, and larger ones than this exceed the cache."""


class RecordBatches:
    """Makes the batches of a query from the decoder's."""

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
        from streaming_source.rows.range_choice import RangeChoice

        statements = None
        if self._tables.include_ddl:
            from streaming_source.rows.statements.ddl_rows import DdlRows

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
        from streaming_source.rows.row_memory import RowMemory

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
    long as decoding a partition. (Asking for the number of frozen objects walks them too: 15 ms.)
    """
    gc.collect()
    gc.freeze()


_schemas: list[tuple[Any, pa.Schema]] = []


def _arrow_schema(plan: ReadPlan) -> pa.Schema:
    """Return the cached schema if the last task was of the same query. Making it takes a millisecond."""
    from streaming_source.schema.arrow import arrow_schema

    key = (plan.shape, plan.columns, plan.schema, plan.wide_sequence)
    if not (_schemas and _schemas[0][0] == key):
        _schemas[:] = [(key, arrow_schema(plan.spark_schema()))]
    return _schemas[0][1]


_memories: list[tuple[ReadPlan, RowMemory]] = []


def _memory_of(plan: ReadPlan) -> RowMemory:
    """Return the cached memory if the last task was of the same query, as with `decoder_of`."""
    from streaming_source.rows.row_memory import RowMemory

    if not (_memories and _memories[0][0] == plan):
        _memories[:] = [(plan, RowMemory())]
    return _memories[0][1]


_decoders: list[tuple[ReadPlan, RangeDecoder]] = []


def decoder_of(plan: ReadPlan) -> RangeDecoder:
    """Return the cached decoder if the last task was of the same query. Its tables are compiled, and its memory is
    allocated.
    """
    if not (_decoders and _decoders[0][0] == plan):
        _decoders[:] = [(plan, _new_decoder(plan))]
    return _decoders[0][1]


def _new_decoder(plan: ReadPlan) -> RangeDecoder:
    from replica.rows.decode.decode import DecodeOptions, RangeDecoder
    from replica.rows.types.types import OutputColumn
    from streaming_source.schema.arrow import arrow_type
    from streaming_source.schema.row_schema import spark_type

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
