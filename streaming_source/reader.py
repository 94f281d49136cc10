"""What a Spark task does: a range of a binlog -> RecordBatches. Stateless; runs again at every retry and every action.

In: a partition and the `ReadPlan` that came with the pickled reader. Out: batches of 4-16 K rows or some 2 MB, of
exactly the query's schema. The same partition gives the same rows in the same order, wherever and however often it is
read. Numba and pyarrow are imported when the first partition is read: every forked worker pays for imports itself.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from replica.errors import ReplicaError, SchemaError
from streaming_source.schema import FLAT, TableColumn, envelope_schema, flat_schema, without_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from replica.rows.batch import ChangeBatch
    from replica.rows.decode import RangeDecoder
    from replica.rows.xa import XaGroup
    from streaming_source.change_rows import RangeFacts
    from streaming_source.file_partition import FilePartition
    from streaming_source.partition import CatalogChanges, ChangePartition, GroupBounds, RowBounds
    from streaming_source.pushed_filters import ChangeFilter
    from streaming_source.range_choice import RangeChoice
    from streaming_source.resolver import SelectedTables
    from streaming_source.table_state import CatalogOrigin

BATCH_ROWS = 16_384
"""Batches of 1 000 rows halve Spark's rate, larger ones than this leave the cache."""


@dataclass(frozen=True)
class ReadPlan:
    """Everything a task needs to know, and no secret. `columns` are the table's with `table`, None with `tables`."""

    shape: Literal["envelope", "flat", "variant"]
    tables: SelectedTables
    columns: tuple[TableColumn, ...] | None
    server: str
    invalid_dates: Literal["null", "error", "text"] = "null"
    invalid_text: Literal["replace", "error"] = "replace"
    geometry: Literal["binary", "spark"] = "binary"
    include_sql: bool = False
    schema: StructType | None = None  # of the query, where it is not our own
    origin: CatalogOrigin | None = None  # where the tables' catalog comes from; None: no server was asked

    @property
    def title(self) -> str:
        return f"{','.join(self.tables.patterns)} as {self.shape}"

    def spark_schema(self) -> StructType:
        if self.schema is not None:
            return self.schema
        return flat_schema(self.columns or ()) if self.shape == "flat" else envelope_schema(self.columns)

    def filtered(self, pushed: ChangeFilter) -> ReadPlan:
        """The plan of a query that wants only the rows that pass."""
        return replace(self, tables=replace(self.tables, filter=pushed))

    def project(self, wanted: StructType) -> ReadPlan:
        """The plan for a schema the user gave: a part of our columns, in any order, of the same types.

        Raises:
            SchemaError: a column that the rows do not have, or has another type there.

        """
        own = {field.name: field.dataType for field in self.spark_schema().fields}
        if {field.name: field.dataType for field in wanted.fields} == own and wanted.names == list(own):
            return self
        for field in wanted.fields:
            if field.name not in own:
                raise SchemaError(
                    f"the schema given to the query names a column {field.name}, which the rows do not have.",
                    hint=f"They have {', '.join(own)}.",
                )
            if without_metadata(own[field.name]) != without_metadata(field.dataType) or not field.nullable:
                given = field.dataType.simpleString() + ("" if field.nullable else " NOT NULL")
                raise SchemaError(
                    f"the schema given to the query makes {field.name} {given}; "
                    f"in the rows it is a nullable {own[field.name].simpleString()}.",
                    hint="Leave the schema out, or take the types from the one that load() gives.",
                )
        columns = self.columns
        if self.shape == "flat" and columns is not None:
            metadata = {column.name for column in FLAT}
            by_name = {column.name: column for column in columns}
            columns = tuple(by_name[name] for name in wanted.names if name not in metadata)
        return replace(self, columns=columns, schema=wanted)


def read_changes(partition: ChangePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The row changes of one partition of a stream.

    Raises:
        ReplicaError: any of the decoder's errors, with the partition named in a note.

    """
    for part in partition.ranges:
        with _noted(f"while reading {part!r}"):
            tables = _tables_in(part.catalog, plan)
            made, data = _RecordBatches(tables), part.data()
            facts = made.facts(part.file, data)
            lost: list[XaGroup] | None = [] if part.lenient else None
            choice = made.choice(data, checksum=part.checksum, bounds=part.bounds, rows=part.rows)
            decoded = _decoder(tables).decode(
                data,
                checksum=part.checksum,
                carried=part.carried_groups(),
                unprepared=lost,
                only=choice.groups,
                ends=part.ends,
            )
            yield from made.batches(decoded, facts, choice)
    _exempt_imports_from_collection()


def _tables_in(changes: CatalogChanges, plan: ReadPlan) -> ReadPlan:
    """The plan with the tables as they are in a range."""
    if not changes:
        return plan
    catalog = {**plan.tables.catalog, **dict(changes)}
    known = {name: table for name, table in catalog.items() if table is not None}
    return replace(plan, tables=replace(plan.tables, catalog=known))


def read_file_changes(partition: FilePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The row changes of one partition of a batch read; errors as with `read_changes`."""
    without_rows: list[XaGroup] = []  # XA COMMITs of other tables' rows; the planner has looked at them
    with _noted(f"while reading {partition!r}"):
        made = _RecordBatches(plan)
        for piece in partition.pieces():
            facts = made.facts(partition.file, piece.data)
            decoder = _decoder(replace(plan, tables=replace(plan.tables, catalog=piece.catalog)))
            with _noted(f"offsets count from byte {piece.offset} of {partition.access.path}"):
                choice = made.choice(piece.data, checksum=piece.checksum)
                decoded = decoder.decode(
                    piece.data,
                    checksum=piece.checksum,
                    carried=piece.carried,
                    unprepared=without_rows,
                    only=choice.of_groups,
                )
                yield from made.batches(decoded, facts, choice)
        _exempt_imports_from_collection()


@contextmanager
def _noted(note: str) -> Iterator[None]:
    """Says more in errors of ours."""
    try:
        yield
    except ReplicaError as error:
        error.add_note(note)
        raise


class _RecordBatches:
    """Makes the batches of a query out of the decoder's."""

    def __init__(self, plan: ReadPlan) -> None:
        from streaming_source import change_rows

        self._server = plan.server
        self._tables = plan.tables
        self._schema = _arrow_schema(plan)
        self._columns = change_rows.FLAT if plan.shape == "flat" else change_rows.ENVELOPE

    def facts(self, file: str, data: memoryview) -> RangeFacts:
        from streaming_source.change_rows import RangeFacts

        return RangeFacts(self._server, file, data)

    def choice(
        self, data: memoryview, *, checksum: bool, bounds: GroupBounds | None = None, rows: Sequence[RowBounds] = ()
    ) -> RangeChoice:
        from streaming_source.range_choice import RangeChoice

        statements = None
        if self._tables.include_ddl:
            from streaming_source.ddl_rows import DdlRows

            statements = DdlRows(self._tables, data, checksum=checksum)
        return RangeChoice(self._tables, statements, bounds, rows)

    def batches(
        self, decoded: Iterable[ChangeBatch], facts: RangeFacts, choice: RangeChoice
    ) -> Iterator[pa.RecordBatch]:
        """What the decoder gives, less the rows that are not wanted, with statements between."""
        import pyarrow as pa

        for changes in decoded:
            batch, wanted, done = self.batch(changes, facts), choice.rows(changes), 0
            for row, statements in [*choice.before(changes), (changes.rows, None)]:
                part = batch.slice(done, row - done) if (done, row) != (0, batch.num_rows) else batch
                if wanted is not None:
                    part = part.filter(pa.array(wanted[done:row]))
                if part.num_rows:
                    yield part
                if statements is not None:
                    yield self.batch(statements, facts)
                done = row
        for statements in choice.rest():
            yield self.batch(statements, facts)

    def batch(self, changes: ChangeBatch, facts: RangeFacts) -> pa.RecordBatch:
        from streaming_source.change_rows import ChangeRows

        return ChangeRows(changes, facts).record_batch(self._schema, self._columns)


@cache
def _exempt_imports_from_collection() -> None:
    """Once per process: Spark's worker collects garbage after every task, and walking all that numba made takes 80 ms
    each time, three times as long as decoding a partition. (Asking how much is frozen walks it, too: 15 ms.)
    """
    gc.collect()
    gc.freeze()


_schemas: list[tuple[Any, pa.Schema]] = []


def _arrow_schema(plan: ReadPlan) -> pa.Schema:
    """Of the last task's query if it is of this one: making it takes a millisecond."""
    from streaming_source.arrow import arrow_schema

    key = (plan.shape, plan.columns, plan.schema)
    if not (_schemas and _schemas[0][0] == key):
        _schemas[:] = [(key, arrow_schema(plan.spark_schema()))]
    return _schemas[0][1]


_decoders: list[tuple[ReadPlan, RangeDecoder]] = []


def _decoder(plan: ReadPlan) -> RangeDecoder:
    """The last task's decoder, if it was of the same query: its tables are compiled, its memory is warm."""
    if not (_decoders and _decoders[0][0] == plan):
        _decoders[:] = [(plan, _new_decoder(plan))]
    return _decoders[0][1]


def _new_decoder(plan: ReadPlan) -> RangeDecoder:
    from replica.rows.decode import DecodeOptions, RangeDecoder
    from replica.rows.types import OutputColumn
    from streaming_source.arrow import arrow_type
    from streaming_source.schema import spark_type

    options = DecodeOptions(
        shape=plan.shape,
        invalid_dates=plan.invalid_dates,
        invalid_text=plan.invalid_text,
        geometry=plan.geometry,
        batch_rows=BATCH_ROWS,
        want_sql=plan.include_sql,
        reuse_buffers=True,  # Spark has written a batch to its socket when it asks for the next
    )
    output = None
    if plan.columns is not None:
        output = [OutputColumn(c.name, arrow_type(spark_type(c.type)), c.type) for c in plan.columns]
    return RangeDecoder(plan.tables, options, output)
