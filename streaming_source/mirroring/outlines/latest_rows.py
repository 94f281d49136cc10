"""The last change of each key of one table in a micro-batch, found by the one task that decodes its rows.

In: a batch of outlines, a table whose rows are whole, few, and of one replication domain. Out: a DataFrame with a row
for each key: the columns as the last change left them, and `_op`, `upsert` or `delete`, as MERGE takes them. The order
of the stream is the order of the changes, so that nothing of their transactions is needed: Spark would copy it with
each row, and sort the rows by their keys, for each table of each batch.

An image of a key that comes last decides. Where that is the image before an update, the update has changed the key, and
the row is gone from under it. The end of a version that is over already says nothing of the row that is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from streaming_source.driver.spark_border import spark_border
from streaming_source.mirroring.outlines.table_rows import (
    numbered,
    parts_of_table,
    plan_of_table,
    told_parts,
    without_broadcast,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch_facts import TableChanges
    from streaming_source.mirroring.outlines.table_rows import ToldPart
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.schema.row_schema import TableColumn

MOST_CHANGES: Final = 250_000
"""One task decodes so many in a quarter of a second; more are worth all cores."""
MOST_BYTES: Final = 64 << 20
"""Bytes of the binlog, of which the task may have to hold the rows: the last change of each key."""
_NO_KEYS: Final = ("FLOAT", "DOUBLE", "ARRAY", "STRUCT", "VARIANT", "GEOMETRY")
"""Beginnings of types that Arrow does not group as Spark does, or not at all: -0.0 and NaN, and what has parts."""
_CHANGE, _HISTORY = "_change_type", "_history"


def fits_one_task(changes: TableChanges, columns: Sequence[TableColumn], keys: Sequence[str]) -> bool:
    """Tell whether one task can find the last changes."""
    kinds = {column.name: column.type for column in columns}
    few = changes.changes <= MOST_CHANGES and changes.bytes <= MOST_BYTES
    plain = not changes.partial and changes.domains <= 1
    return few and plain and all(key in kinds and not kinds[key].startswith(_NO_KEYS) for key in keys)


def latest_rows(batch: DataFrame, latest: LatestOfTable, changes: TableChanges) -> DataFrame:
    """Return the last change of each key of a table that `fits_one_task`."""
    from pyspark.sql import functions as f

    columns = latest.columns
    schema = numbered(columns).add(_gone(columns), "boolean")
    found = parts_of_table(batch, latest.name, 1).mapInArrow(latest, schema)
    rows = found.select(
        *(f.col(str(number)).alias(column.name) for number, column in enumerate(columns)),
        f.when(f.col(_gone(columns)), "delete").otherwise("upsert").alias("_op"),
    )
    return without_broadcast(rows, changes)


def _gone(columns: Sequence[TableColumn]) -> str:
    return str(len(columns))


@dataclass(frozen=True, slots=True)
class LatestOfTable:
    """The function of the task: the parts of a batch -> the last change of each key in them. `keys` are numbers of
    columns, as text.
    """

    name: TableName
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]

    @classmethod
    def by_names(cls, name: TableName, columns: tuple[TableColumn, ...], keys: Sequence[str]) -> LatestOfTable:
        """Return the function for a table with these key columns."""
        names = [column.name for column in columns]
        return cls(name, columns, tuple(str(names.index(key)) for key in keys))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from streaming_source.rows.record_batches import BATCH_ROWS

        found: list[pa.RecordBatch] = []
        for part in sorted(told_parts(batches), key=attrgetter("number")):
            with spark_border():
                found += self._of_part(part)
        if found:
            (rows,) = pa.Table.from_batches(found).combine_chunks().to_batches()  # they are few
            latest = rows.take(_last_places(rows, self.keys))
            yield from (latest.slice(first, BATCH_ROWS) for first in range(0, latest.num_rows, BATCH_ROWS))

    def _of_part(self, part: ToldPart) -> Iterator[pa.RecordBatch]:
        """Yield the last changes of each batch, in memory of their own: the decoder uses its own again."""
        from streaming_source.rows.reader import read_changes

        changed = replace(part.partition, ranges=tuple(one for one in part.partition.ranges if one.read is None))
        for rows in read_changes(changed, self._plan(part)):
            told = _told(rows, _gone(self.columns))
            if told.num_rows:
                yield told.take(_last_places(told, self.keys))

    def _plan(self, part: ToldPart) -> ReadPlan:
        schema = numbered(self.columns).add(_CHANGE, "string").add(_HISTORY, "boolean")
        return replace(
            plan_of_table(part.plan, self.name, part.known), shape="flat", columns=self.columns, schema=schema
        )


def _told(rows: pa.RecordBatch, gone: str) -> pa.RecordBatch:
    """Return flat rows with the column `gone` in the place of what they are, without ends of older versions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    change, ended = rows.column(_CHANGE), rows.column(_HISTORY)
    is_gone = pc.invert(pc.match_substring_regex(change, pattern="^(insert|update_postimage)$"))
    names = rows.schema.names[:-2]
    told = pa.RecordBatch.from_arrays([*rows.columns[:-2], is_gone], names=[*names, gone])
    if not ended.true_count:
        return told
    ended = pc.and_kleene(ended, ended.is_valid())  # FALSE for NULL
    alone = pc.match_substring_regex(change, pattern="^(insert|delete)$")
    told = told.set_column(len(names), gone, pc.or_(is_gone, ended))
    return told.filter(pc.invert(pc.and_(ended, alone)))


def _last_places(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """Return the place of the last row of each key, in the order of the rows.

    Arrow's own grouping would do, but it imports pandas.
    """
    import numpy as np

    from replica.rows.types.arrow_arrays import array_of

    codes = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        encoded = rows.column(key).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + _numbers(encoded.indices)
        if len(keys) > 1:  # no more codes than rows
            codes = np.unique(codes, return_inverse=True)[1]
    last = np.full(rows.num_rows, -1)
    last[codes] = np.arange(rows.num_rows)  # of several places, the last one stays
    return array_of(np.sort(last[last >= 0]))


def _numbers(codes: pa.Int32Array) -> npt.NDArray[np.int32]:
    import numpy as np

    return np.frombuffer(codes.buffers()[1], np.int32)[codes.offset : codes.offset + len(codes)]
