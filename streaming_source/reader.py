"""What a Spark task does: a range of a binlog -> RecordBatches. Stateless; runs again at every retry and every action.

In: a partition and the `ReadPlan` that came with the pickled reader. Out: batches of 4-16 K rows or some 2 MB, of
exactly the query's schema. The same partition gives the same rows in the same order, wherever and however often it is
read. Numba and pyarrow are imported when the first partition is read: every forked worker pays for imports itself.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from replica.errors import ReplicaError, SchemaError
from streaming_source.schema import FLAT, TableColumn, envelope_schema, flat_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from replica.rows.batch import ChangeBatch, Groups
    from replica.rows.decode import RangeDecoder
    from replica.rows.xa import XaGroup
    from streaming_source.change_rows import RangeFacts
    from streaming_source.file_partition import FilePartition
    from streaming_source.partition import ChangePartition, GroupBounds
    from streaming_source.resolver import SelectedTables

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

    @property
    def title(self) -> str:
        return f"{','.join(self.tables.patterns)} as {self.shape}"

    def spark_schema(self) -> StructType:
        if self.schema is not None:
            return self.schema
        return flat_schema(self.columns or ()) if self.shape == "flat" else envelope_schema(self.columns)

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
            if own[field.name] != field.dataType or not field.nullable:
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
    import pyarrow as pa

    with _noted(f"while reading {partition!r}"):
        made, data = _RecordBatches(plan), partition.data()
        facts = made.facts(partition.file, data)
        lost: list[XaGroup] | None = [] if partition.lenient else None
        carried = partition.carried_groups()
        for changes in _decoder(plan).decode(data, checksum=partition.checksum, carried=carried, unprepared=lost):
            batch = made.batch(changes, facts)
            if partition.bounds is not None:
                batch = batch.filter(pa.array(wanted_groups(partition.bounds, changes.groups)[changes.group]))
            yield batch
        _exempt_imports_from_collection()


def read_file_changes(partition: FilePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The row changes of one partition of a batch read; errors as with `read_changes`."""
    without_rows: list[XaGroup] = []  # XA COMMITs of other tables' rows; the planner has looked at them
    with _noted(f"while reading {partition!r}"):
        made = _RecordBatches(plan)
        for piece in partition.pieces():
            facts = made.facts(partition.file, piece.data)
            decoder = _decoder(replace(plan, tables=replace(plan.tables, catalog=piece.catalog)))
            with _noted(f"offsets count from byte {piece.offset} of {partition.access.path}"):
                for changes in decoder.decode(
                    piece.data, checksum=piece.checksum, carried=piece.carried, unprepared=without_rows
                ):
                    yield made.batch(changes, facts)
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
        from streaming_source.arrow import arrow_schema

        self._server = plan.server
        self._schema = arrow_schema(plan.spark_schema())
        self._columns = change_rows.FLAT if plan.shape == "flat" else change_rows.ENVELOPE

    def facts(self, file: str, data: memoryview) -> RangeFacts:
        from streaming_source.change_rows import RangeFacts

        return RangeFacts(self._server, file, data)

    def batch(self, changes: ChangeBatch, facts: RangeFacts) -> pa.RecordBatch:
        from streaming_source.change_rows import ChangeRows

        return ChangeRows(changes, facts).record_batch(self._schema, self._columns)


def _exempt_imports_from_collection() -> None:
    """Once per process: Spark's worker collects garbage after every task, and walking all that numba made takes 80 ms
    each time, three times as long as decoding a partition.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


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


def wanted_groups(bounds: GroupBounds, groups: Groups) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Per group of a range whether it is wanted."""
    import numpy as np

    wanted = np.ones(len(groups), np.bool_)
    seq_no = groups.seq_no.view(np.uint64)
    for domain, number in bounds.lower or ():
        wanted &= (groups.domain != domain) | (seq_no > np.uint64(number))
    if bounds.upper is not None:
        below = np.zeros(len(groups), np.bool_)
        for domain, number in bounds.upper:
            below |= (groups.domain == domain) & (seq_no <= np.uint64(number))
        wanted &= below
    return wanted
