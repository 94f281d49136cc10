"""Rows of one table of a micro-batch, decoded by Spark tasks on demand.

`rows_of_table` returns a DataFrame of envelope rows, whose images are STRUCTs of the given columns. Without columns the
images are VARIANT, for rows of several definitions. `values_read` returns only the values of snapshot rows, because
Spark copies each column of an envelope. Nothing is cached: each use of a DataFrame decodes the same rows again from the
relay log.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.schema.patterns import table_text
from streaming_source.driver.same_version import OfThisVersion
from streaming_source.driver.spark_border import spark_border
from streaming_source.mirroring.batch.manifest import KNOWN, RANGE
from streaming_source.schema.row_schema import envelope_schema, spark_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from replica.rows.types.types import ValuePolicy
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.batch.batch_facts import TableChanges
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.schema.row_schema import TableColumn

INTERVAL: Final = "INTERVAL DAY TO SECOND"
_DIGITS: Final = re.compile(r"time\s*\((\d)\)", re.IGNORECASE)
_SECOND: Final = 1_000_000
_HOUR: Final = 3600
_POWERS: Final = (100_000, 10_000, 1_000, 100, 10, 1)


def time_digits(declared: str) -> int:
    """Return the number of fractional digits of a TIME, from its declaration, such as `time(3)`."""
    found = _DIGITS.match(declared)
    return int(found[1]) if found else 0


def time_texts(values: pa.Array, digits: int) -> pa.Array:
    """Return TIME values as text.

    Args:
        values: durations in microseconds, up to 838:59:59.999999 in either direction.
        digits: the number of fractional digits, from 0 to 6.
    """
    import numpy as np
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import validity

    count = len(values)
    known = np.ones(count, np.bool_)
    if values.null_count:
        bits = np.frombuffer(values.is_valid().buffers()[1], np.uint8)
        known = np.unpackbits(bits, count=count, bitorder="little").astype(np.bool_)
    micros = np.where(known, np.frombuffer(values.buffers()[1], np.int64, count, values.offset * 8), 0)
    seconds, fraction = np.divmod(np.abs(micros), _SECOND)
    hours, rest = np.divmod(seconds, _HOUR)
    colon, point = (np.full(count, ord(mark)) for mark in ":.")
    parts = [
        np.full(count, ord("-")),
        *_digits(hours, 3),
        colon,
        *_digits(rest // 60, 2),
        colon,
        *_digits(rest % 60, 2),
    ]
    if digits:
        parts += [point, *_digits(fraction, 6)[:digits]]
    text = np.stack(parts, axis=1).astype(np.uint8)
    written = np.repeat(known[:, None], text.shape[1], axis=1)
    written[:, 0] &= micros < 0
    written[:, 1] &= hours >= 100
    offsets = np.concatenate(([0], np.cumsum(written.sum(axis=1)))).astype(np.int32)
    data = pa.py_buffer(text[written].tobytes())
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), data, validity(known))


def _digits(numbers: Any, count: int) -> list[Any]:
    """Return the last `count` decimal digits of numbers as characters, one array for each digit."""
    return [numbers // power % 10 + ord("0") for power in _POWERS[-count:]]


ROWS_A_TASK: Final = 50_000
"""Fewest rows for an additional task: starting a task costs as much as decoding this number of rows."""
TASKS_A_CORE: Final = 2
MOST_ROWS_A_TASK: Final = 1_000_000
"""Rows in one task above which a core gets more than TASKS_A_CORE tasks.

Each task makes its own projections, statistics and file. So a core gets only as many tasks as keep all cores busy until
the job ends, unless the files would be very large.
"""
BROADCAST_BYTES: Final = 2 << 20
"""Most bytes of the binlog that Spark may broadcast in a join.

Spark estimates the size of decoded rows from the size of their manifest, and would broadcast a million rows. A byte of
the binlog takes about four bytes in memory, and Spark's own limit is 10 MB.
"""
OTHER_TYPES: Final = frozenset({INTERVAL, "GEOMETRY(ANY)"})
"""Column types that a target holds as another type. VARIANT images already have values of that other type."""


def typed_columns(table: TableSchema, policy: ValuePolicy, *, times: bool = False) -> tuple[TableColumn, ...] | None:
    """Return the columns into which a table's rows can be decoded; None if their images have to be VARIANT.

    Args:
        table: the definition of the table.
        policy: the policy for values that the column types cannot hold.
        times: whether the reader converts TIME to text, as `flat_rows` does.
    """
    from streaming_source.schema.table_columns import catalog_table_columns

    if "*" in table.name or any(column.hidden for column in table.columns):  # a pattern, or columns that VARIANT omits
        return None
    columns = catalog_table_columns(table, policy)
    others = OTHER_TYPES - {INTERVAL} if times else OTHER_TYPES
    return None if any(column.type in others for column in columns) else columns


def rows_of_table(
    batch: DataFrame,
    name: TableName,
    columns: tuple[TableColumn, ...] | None,
    changes: TableChanges,
    *,
    wide_sequence: bool,
) -> DataFrame:
    """Return the rows of a table.

    Args:
        batch: the manifests.
        name: the table.
        columns: the columns of the images; None for VARIANT.
        changes: the numbers of the table in the micro-batch.
        wide_sequence: sequence numbers are DECIMAL(20,0).
    """
    from pyspark.sql import functions as f

    read = RowsOfTable(*name, columns)
    schema = envelope_schema(columns, wide_sequence=wide_sequence)
    found = parts_of_table(batch, name, changes.rows).mapInArrow(read, schema)
    rows = found.where((f.col("database") == name[0]) & (f.col("table") == name[1]))
    return without_broadcast(rows, changes)


def without_broadcast(rows: DataFrame, changes: TableChanges) -> DataFrame:
    """Return the rows with a hint that keeps Spark from broadcasting them in a join, if they are too many."""
    return rows if changes.bytes <= BROADCAST_BYTES else rows.hint("merge")


def values_read(
    batch: DataFrame, name: TableName, columns: tuple[TableColumn, ...], changes: TableChanges, *, wide_sequence: bool
) -> DataFrame:
    """Return the snapshot rows of a table, as envelope rows with only `op` and `after`."""
    from pyspark.sql import functions as f

    envelope = envelope_schema(columns, wide_sequence=wide_sequence)
    found = parts_of_table(batch, name, changes.reads).mapInArrow(
        RowsOfTable(*name, columns, values=True), numbered(columns)
    )
    values = f.struct(*(f.col(str(number)).alias(column.name) for number, column in enumerate(columns)))
    known = {"op": f.lit("read"), "database": f.lit(name[0]), "table": f.lit(name[1]), "after": values}
    nothing = {field.name: f.lit(None).cast(field.dataType) for field in envelope}
    return found.select(*(value.alias(field) for field, value in (nothing | known).items()))


def is_plain_pattern(name: TableName) -> bool:
    """Return True if a table's name, used as a pattern, selects no other table; a dot or an asterisk may."""
    return not any(character in part for part in name for character in ".*")


def numbered(columns: tuple[TableColumn, ...]) -> StructType:
    """Return the columns of a table as a Spark schema, named by their numbers, because a table may use any name."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for number, column in enumerate(columns):
        schema = schema.add(str(number), spark_type(column.type))
    return schema


def parts_of_table(batch: DataFrame, name: TableName, rows: int) -> DataFrame:
    """Return the manifest rows of partitions, each followed by that of the table in it, in tasks for `rows` rows."""
    from pyspark.sql import functions as f

    here = (f.col("database") == name[0]) & (f.col("table") == name[1]) & f.col(KNOWN).isNotNull()
    parts = batch.where(f.col(RANGE).isNotNull() | here).select(RANGE, KNOWN)
    cores = batch.sparkSession.sparkContext.defaultParallelism
    return parts.coalesce(tasks_for(rows, cores))


def tasks_for(rows: int, cores: int) -> int:
    """Return the number of tasks for reading and writing `rows` rows on this many cores."""
    most = max(TASKS_A_CORE * cores, -(-rows // MOST_ROWS_A_TASK))
    return max(1, min(-(-rows // ROWS_A_TASK), most))


class TablePartition(NamedTuple):
    """Partition of a micro-batch that has rows of a table.

    Attributes:
        number: its place in the micro-batch.
        known: the definition of the table in this partition, if the catalog had one.
    """

    number: int
    partition: ChangePartition
    plan: ReadPlan
    known: TableSchema | None


def packed_batch(parts: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
    """Return partitions with the definition of a table as manifest columns, which `table_partitions` reads."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values

    ranges = [value for packed, _ in parts for value in (packed, None)]
    known = [value for _, packed in parts for value in (None, packed)]
    arrays = [array_of_values(values, pa.binary()) for values in (ranges, known)]
    return pa.RecordBatch.from_arrays(arrays, names=[RANGE, KNOWN])


def table_partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[TablePartition]:
    """Yield the partitions in the rows of `parts_of_table`."""
    partition: tuple[int, ChangePartition, ReadPlan] | None = None
    for batch in batches:
        for packed, known in zip(batch.column(RANGE).to_pylist(), batch.column(KNOWN).to_pylist(), strict=True):
            if packed is not None:
                partition = pickle.loads(packed)  # noqa: S301  (another task of this query pickled it)
            elif partition is not None:
                yield TablePartition(*partition, known=pickle.loads(known))  # noqa: S301


@dataclass(frozen=True, slots=True)
class RowsOfTable(OfThisVersion):
    """Function of the tasks: rows of manifests -> the rows of a table in their partitions.

    With `values` it yields only snapshot rows, without metadata of their transactions.
    """

    database: str
    table: str
    columns: tuple[TableColumn, ...] | None
    values: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streaming_source.rows.reader import read_changes

        for part in table_partitions(batches):
            with spark_border():
                yield from read_changes(self._wanted(part.partition), self._plan(part.plan, part.known))

    def _wanted(self, partition: ChangePartition) -> ChangePartition:
        if not self.values:
            return partition
        return replace(partition, ranges=tuple(part for part in partition.ranges if part.read is not None))

    def _plan(self, plan: ReadPlan, known: TableSchema | None) -> ReadPlan:
        plan = plan_of_table(plan, (self.database, self.table), known)
        if self.columns is None:
            return replace(plan, shape="variant", columns=None)
        if self.values:
            return replace(plan, shape="flat", columns=self.columns, schema=numbered(self.columns))
        return replace(plan, shape="envelope", columns=self.columns)


def flat_rows(
    part: TablePartition, name: TableName, columns: tuple[TableColumn, ...], metadata: Sequence[str] = (), *, read: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one table in a partition, in the order of the stream, in the flat shape.

    The decoder overwrites the memory of a batch when the next batch is requested.

    Args:
        part: the partition.
        name: the table.
        columns: the columns into which its rows are decoded. The batches name them by number, `0`, `1`, …; TIME is
            text.
        metadata: the columns of the flat shape that follow them, such as `_gtid`.
        read: True for snapshot rows, False for changes.
    """
    from streaming_source.rows.reader import read_changes
    from streaming_source.schema.row_schema import flat_schema

    plan = plan_of_table(part.plan, name, part.known)
    fields = {field.name: field for field in flat_schema((), wide_sequence=plan.wide_sequence)}
    schema = numbered(columns)
    for field in metadata:
        schema = schema.add(fields[field])
    ranges = tuple(one for one in part.partition.ranges if (one.read is not None) == read)
    plan = replace(plan, shape="flat", columns=columns, schema=schema)
    times = {number: time_digits(one.declared) for number, one in enumerate(columns) if one.type == INTERVAL}
    with spark_border():
        for rows in read_changes(replace(part.partition, ranges=ranges), plan):
            for number, digits in times.items():
                rows = rows.set_column(number, str(number), time_texts(rows.column(number), digits))  # noqa: PLW2901
            yield rows


def plan_of_table(plan: ReadPlan, name: TableName, known: TableSchema | None) -> ReadPlan:
    """Return the plan with which a task reads the rows of one table."""
    tables = replace(
        plan.tables,
        patterns=(table_text(name),),
        catalog={} if known is None else {name: known},
        exclude=(),
        include_ddl=False,
        shadows=True,  # the manifest already excludes shadow tables
    )
    return replace(plan, tables=tables)
