"""Last change of each key of one table in a micro-batch, found by the one task that decodes its rows.

In: a batch of manifests and a table whose changes pass `fits_one_task`. Out: a DataFrame with one row for each key, as
MERGE takes it: the columns after the last change, and `_op`, `upsert` or `delete`. The order of the stream is the order
of the changes, so transaction metadata is not needed. Spark would copy this metadata with each row, and sort the rows
by key, for each table of each micro-batch.

The last image of a key decides. If it is the before image of an update, the update changed the key, so the row of the
old key is deleted. An image of an ended version (system versioning) does not change the valid row.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from streaming_source.driver.same_version import OfThisVersion
from streaming_source.mirroring.batch.table_rows import (
    flat_rows,
    numbered,
    parts_of_table,
    table_partitions,
    without_broadcast,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import TableChanges
    from streaming_source.mirroring.batch.table_rows import TablePartition
    from streaming_source.schema.row_schema import TableColumn

MOST_CHANGES: Final = 250_000
"""Most changes for one task. Decoding them takes a quarter of a second. Spark spreads more changes over all cores."""
MOST_BYTES: Final = 64 << 20
"""Most bytes of the binlog for one task, which holds the last change of each key in memory. Spark takes larger tables.
"""
_NO_KEYS: Final = ("FLOAT", "DOUBLE", "ARRAY", "STRUCT", "VARIANT", "GEOMETRY")
"""Prefixes of types that Arrow groups differently from Spark (-0.0 and NaN), or cannot group (nested types)."""
CHANGE: Final = "_change_type"
HISTORY: Final = "_history"


def fits_one_task(
    changes: TableChanges,
    columns: Sequence[TableColumn],
    keys: Sequence[str],
    most_bytes: int = MOST_BYTES,
    *,
    partial: bool = False,
) -> bool:
    """Return True if one task can find the last change of each key.

    Args:
        changes: the facts of the table in the micro-batch.
        columns: the columns of the rows.
        keys: the key columns. Keys of types that Arrow groups differently from Spark need Spark.
        most_bytes: the limit of the task, in bytes of the binlog.
        partial: whether the task can use images that lack columns.
    """
    kinds = {column.name: column.type for column in columns}
    few = changes.changes <= MOST_CHANGES and changes.bytes <= most_bytes
    plain = partial or not changes.partial
    ordered = changes.domains <= 1
    return few and plain and ordered and all(key in kinds and not kinds[key].startswith(_NO_KEYS) for key in keys)


def latest_rows(batch: DataFrame, latest: LatestOfTable, changes: TableChanges) -> DataFrame:
    """Return the last change of each key of a table for which `fits_one_task` is true."""
    from pyspark.sql import functions as f

    columns = latest.columns
    schema = numbered(columns).add(_deleted_name(columns), "boolean")
    found = parts_of_table(batch, latest.name, 1).mapInArrow(latest, schema)
    rows = found.select(
        *(f.col(str(number)).alias(column.name) for number, column in enumerate(columns)),
        f.when(f.col(_deleted_name(columns)), "delete").otherwise("upsert").alias("_op"),
    )
    return without_broadcast(rows, changes)


def _deleted_name(columns: Sequence[TableColumn]) -> str:
    return str(len(columns))


@dataclass(frozen=True, slots=True)
class LatestOfTable(OfThisVersion):
    """Function of the task: partitions of a micro-batch -> the last change of each key in them.

    Attributes:
        keys: the numbers of the key columns, as text.
        metadata: columns of the flat shape that follow the column for deleted rows.
    """

    name: TableName
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]
    metadata: tuple[str, ...] = ()

    @classmethod
    def by_names(cls, name: TableName, columns: tuple[TableColumn, ...], keys: Sequence[str]) -> LatestOfTable:
        """Return the function for a table with key columns of these names."""
        names = [column.name for column in columns]
        return cls(name, columns, tuple(str(names.index(key)) for key in keys))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from streaming_source.rows.reader import BATCH_ROWS

        found: list[pa.RecordBatch] = []
        for part in sorted(table_partitions(batches), key=attrgetter("number")):
            found += self._of_part(part)
        if found:
            (rows,) = pa.Table.from_batches(found).combine_chunks().to_batches()  # few rows: see MOST_BYTES
            latest = rows.take(last_places(rows, self.keys))
            yield from (latest.slice(first, BATCH_ROWS) for first in range(0, latest.num_rows, BATCH_ROWS))

    def _of_part(self, part: TablePartition) -> Iterator[pa.RecordBatch]:
        """Yield the last changes of each batch, copied, because the decoder overwrites its own memory."""
        metadata = (CHANGE, HISTORY, *self.metadata)
        for rows in flat_rows(part, self.name, self.columns, metadata, read=False):
            changes = with_deleted(rows, len(self.columns))
            if changes.num_rows:
                yield changes.take(last_places(changes, self.keys))


def with_deleted(rows: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    """Return flat rows without the images of ended versions, with a column for deleted keys.

    Args:
        rows: `columns` columns of a table, then `_change_type` and `_history`, then any other columns.
        columns: the number of table columns. It is also the name of the new BOOLEAN column, which replaces
            `_change_type` and `_history`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    change, ended = rows.column(CHANGE), rows.column(HISTORY)
    deleted = pc.invert(pc.match_substring_regex(change, pattern="^(insert|update_postimage)$"))
    names, others = rows.schema.names[:columns], rows.schema.names[columns + 2 :]

    def marked(deleted: pa.Array) -> pa.RecordBatch:
        arrays = [*rows.columns[:columns], deleted, *rows.columns[columns + 2 :]]
        return pa.RecordBatch.from_arrays(arrays, names=[*names, str(columns), *others])

    if not ended.true_count:
        return marked(deleted)
    ended = pc.and_kleene(ended, ended.is_valid())  # FALSE for NULL
    single_change = pc.match_substring_regex(change, pattern="^(insert|delete)$")
    return marked(pc.or_(deleted, ended)).filter(pc.invert(pc.and_(ended, single_change)))


def key_codes(rows: pa.RecordBatch | pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each row that is equal for rows with the same key.

    Arrow's `group_by` imports pandas, so it is not used.

    Returns:
        Shape (rows,), int64.
    """
    import numpy as np

    codes = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        encoded = rows.column(key).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + numbers(encoded.indices)
        if len(keys) > 1:  # so that a code stays below the number of rows, and no product overflows
            codes = np.unique(codes, return_inverse=True)[1]
    return codes


def last_places(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """Return the row number of the last row of each key, in ascending order (int64)."""
    import numpy as np

    from replica.rows.types.arrow_arrays import array_of

    codes = key_codes(rows, keys)
    last = np.full(len(codes), -1)
    last[codes] = np.arange(len(codes))  # numpy keeps the last of several assignments
    return array_of(np.sort(last[last >= 0]))


def numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return integers without NULL as a numpy array over Arrow's memory. Arrow's own conversion imports pandas."""
    import numpy as np

    kind = np.dtype(f"i{values.type.bit_width // 8}")
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
