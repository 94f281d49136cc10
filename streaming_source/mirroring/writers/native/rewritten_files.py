"""Application of changes to the files of a table that have rows with the changed keys.

The task reads the keys of each file whose limits do not exclude them. In a large file the changed rows are marked as
deleted (`deletion_vectors.py`), until they are a quarter of its rows. Other files with a changed key are copied without
the changed rows, one record batch at a time. The new rows follow in the last file. A MERGE of delta-rs is a query with
a plan and a join: for a million rows it takes 1.5 times as long and twice the memory. The caller makes the commit,
which removes the old files and adds the new ones. The commit has to fail if another commit came between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming_source.mirroring.batch.latest_rows import key_codes, numbers
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    physical_name,
    remove_files,
    rows_of,
    write_file,
)
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE
from streaming_source.sinks.storage import files_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.mirroring.writers.native.deletion_vectors import Positions

MOST_BYTES: Final = 1 << 30
"""Most bytes of files that one task rewrites, in some ten seconds. For more, Spark writes, on all cores."""
MOST_MARKED_BYTES: Final = 16 << 30
"""Most bytes of files in which one task marks rows as deleted, because it reads their key columns.

For 10,000 keys in 100 million rows, in files of 5 GB, this takes a task 9 CPU seconds. Spark's MERGE takes 450.
"""
MOST_POSITIONS: Final = 32 << 20
"""Most positions of deleted rows that one task holds, 256 MB."""
SMALL_BYTES: Final = 1 << 20
"""Most bytes of a table that is rewritten as a whole, into one file."""
MARKED_BYTES: Final = 4 << 20
"""Bytes of a file from which rows are marked as deleted. A smaller file is copied in some 50 ms."""
MOST_MARKED: Final = 0.25
"""Most rows of a file that are marked as deleted, as a fraction, because readers read them all."""
JOINED_BYTES: Final = 64 << 20
"""Most bytes of rewritten files that are joined into one."""
_APPEND_ONLY: Final = "delta.appendOnly"
_INVARIANT: Final = b"delta.invariants"


def is_rewritable(
    table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema, mode: str, keys: Sequence[str]
) -> bool:
    """Return True if files of a table can be rewritten; else changes have to be merged by a query.

    Args:
        table: the table.
        files: all of its files.
        schema: its columns, as delta-rs reports them.
        mode: the mode of the target. A history has several rows for each key, so it is not rewritten.
        keys: the key columns. 0.0 and -0.0 are one key for a MERGE, and two for Arrow.
    """
    import pyarrow as pa

    if mode not in (CURRENT, SOFT_DELETE) or any(pa.types.is_floating(schema.field(key).type) for key in keys):
        return False
    return has_changeable_rows(table, files, schema)


def has_changeable_rows(table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema) -> bool:
    """Return True if rows of a table may be deleted, and its files rewritten by their names.

    Args:
        table: the table.
        files: all of its files.
        schema: its columns, as delta-rs reports them.
    """
    metadata = table.metadata()
    ruled = any(_INVARIANT in (field.metadata or {}) for field in schema)
    if metadata.partition_columns or metadata.configuration.get(_APPEND_ONLY, "").lower() == "true" or ruled:
        return False
    return all(file.is_plain for file in files)


class ChangedFiles(NamedTuple):
    """Files that have rows with changed keys.

    Attributes:
        copied: the files that are copied without the changed rows.
        marked: the positions of all deleted rows, changed ones included, of each file that stays. Shape
            (deleted rows,), int64, ascending.
    """

    copied: list[TableFile]
    marked: dict[TableFile, Positions]


def files_with_keys(
    folder: str, files: Sequence[TableFile], keys: FileKeys, deleted: Mapping[str, Positions], *, marks: bool
) -> ChangedFiles:
    """Return the files that have rows with some keys; all files of a table of up to SMALL_BYTES are copied.

    Args:
        folder: the folder of the table.
        files: all of its files.
        keys: the changed keys.
        deleted: the positions of rows that are deleted already, by file.
        marks: whether rows may be marked as deleted.

    Raises:
        NativeWriteError: the files have more than MOST_BYTES or MOST_MARKED_BYTES, or MOST_POSITIONS of deleted rows.
    """
    import numpy as np

    if sum(file.size for file in files) <= SMALL_BYTES:
        return ChangedFiles(list(files), {})
    found, nowhere = ChangedFiles([], {}), np.empty(0, np.int64)
    marked_bytes, positions_held = 0, sum(positions.size for positions in deleted.values())
    for file in files:
        markable = marks and file.size >= MARKED_BYTES
        if not markable and file.path not in deleted:
            if keys.are_in(folder, file):
                found.copied.append(file)
            continue
        positions = keys.positions(folder, file)
        if positions is None:
            found.copied.append(file)
            continue
        before = deleted.get(file.path, nowhere)
        after = np.union1d(before, positions)
        if after.size == before.size:
            continue
        if markable and after.size <= MOST_MARKED * (file.rows or 0):
            found.marked[file] = after
            marked_bytes += file.size
            positions_held += after.size
            _check_marked(marked_bytes, positions_held)
        else:
            found.copied.append(file)
    size = sum(file.size for file in found.copied)
    if size > MOST_BYTES:
        raise NativeWriteError(f"its changes are in {size >> 20} MB of files that have to be copied")
    return found


def _check_marked(size: int, positions: int) -> None:
    if size > MOST_MARKED_BYTES:
        raise NativeWriteError(f"its changes are in more than {MOST_MARKED_BYTES >> 30} GB of its files")
    if positions > MOST_POSITIONS:
        raise NativeWriteError(f"more than {MOST_POSITIONS:,} rows of its files are deleted")


def rewritten(
    folder: str,
    files: Sequence[TableFile],
    schema: pa.Schema,
    keys: KeptRows,
    changes: pa.Table,
    deleted: pa.ChunkedArray | None,
    already: Mapping[str, Positions] | None = None,
) -> list[DataFile]:
    """Rewrite files of a table with some changes, and return the new files.

    Args:
        folder: the folder of the table.
        files: the files that have rows with changed keys.
        schema: the columns of the table.
        keys: selects the rows of the files that stay: those without a changed key.
        changes: the last change of each key, with the columns of the table by their names.
        deleted: whether each change deletes its row, shape (changes,), bool. None: no change does.
        already: the positions of rows that are deleted already, by file.

    Raises:
        NativeWriteError: a file does not have the rows that the log says, or a value does not fit. No file is left.
    """
    import pyarrow.compute as pc

    opened = (changes if deleted is None else changes.filter(pc.invert(deleted))).select(schema.names)
    added: list[DataFile] = []
    try:
        *groups, last = list(_joined(files)) or [[]]
        for group, rows in (*((group, []) for group in groups), (last, opened.to_batches())):
            new = write_file(folder, schema, schema.names, _rows(folder, group, schema, keys, rows, already))
            added += [] if new is None else [new]
    except BaseException:
        remove_files(folder, added)
        raise
    return added


def _rows(
    folder: str,
    files: Sequence[TableFile],
    schema: pa.Schema,
    changed: KeptRows,
    opened: Sequence[pa.RecordBatch],
    already: Mapping[str, Positions] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files whose keys did not change, then the new rows."""
    for batch in rows_of(folder, files, schema, already):
        kept = changed.left(batch)
        if kept.num_rows:
            yield kept
    yield from (batch for batch in opened if batch.num_rows)


def _joined(files: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    """Yield files in their order, in groups of up to JOINED_BYTES."""
    group: list[TableFile] = []
    size = 0
    for file in files:
        if group and size + file.size > JOINED_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


class KeptRows(Protocol):
    """Interface of an object that decides which rows of files stay."""

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay."""


class FileKeys:
    """Changed keys, with the column names of a table's files."""

    def __init__(self, schema: pa.Schema, keys: pa.Table) -> None:
        """Keep the changed keys.

        Args:
            schema: the columns of the table.
            keys: one column for each key column, with the names and types of the table.
        """
        self._changed = keys.rename_columns([physical_name(schema.field(name)) for name in keys.schema.names])
        self._names = self._changed.schema.names
        self._first = whole_numbers(self._changed.column(0))

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have none of the keys."""
        from replica.rows.types.arrow_arrays import array_of

        changed = self._changed_rows(rows)
        return rows.filter(array_of(~changed)) if changed.any() else rows

    def are_in(self, folder: str, file: TableFile) -> bool:
        """Return True if a file has one of the keys. Only row groups whose limits allow it are read."""
        if not self._changed.num_rows:
            return False
        with files_in(folder).read(file.path) as source, _parquet(source) as opened:
            return self._lacks_column(opened) or any(changed.any() for _, changed in self._changed_of(opened))

    def positions(self, folder: str, file: TableFile) -> Positions | None:
        """Return the positions of the rows of a file that have one of the keys.

        Returns:
            Shape (rows,), int64, ascending. None if the file lacks a key column.
        """
        import numpy as np

        nowhere = np.empty(0, np.int64)
        if not self._changed.num_rows:
            return nowhere
        with files_in(folder).read(file.path) as source, _parquet(source) as opened:
            if self._lacks_column(opened):
                return None
            found = [first + np.flatnonzero(changed) for first, changed in self._changed_of(opened)]
        return np.concatenate([nowhere, *found])

    def _lacks_column(self, opened: pq.ParquetFile) -> bool:
        """Return True if a file is older than a key column, which is NULL in its rows."""
        return not set(self._names) <= set(opened.schema_arrow.names)

    def _changed_of(self, opened: pq.ParquetFile) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
        """Yield for batches of a file's rows the position of the first one, and whether each has one of the keys."""
        first, name, begin = self._first, self._names[0], 0
        for number in range(opened.num_row_groups):
            position = begin
            begin += opened.metadata.row_group(number).num_rows
            if first is not None and not limits_allow(opened, number, name, first):
                continue
            for batch in opened.iter_batches(row_groups=[number], columns=self._names):
                yield position, self._changed_rows(batch)
                position += batch.num_rows

    def _changed_rows(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows have one of the keys; shape (rows,), bool."""
        import numpy as np
        import pyarrow as pa

        own = pa.Table.from_batches([rows.select(self._names)]).cast(self._changed.schema)
        both = pa.concat_tables([own, self._changed])
        (keys,) = both.combine_chunks().to_batches()
        codes = key_codes(keys, keys.schema.names)
        flags = np.zeros(codes.max(initial=0) + 1, np.bool_)
        flags[codes[rows.num_rows :]] = True
        return flags[codes[: rows.num_rows]]


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def limits_allow(file: pq.ParquetFile, number: int, name: str, wanted: npt.NDArray[np.int64]) -> bool:
    """Return True if the limits of a column in a row group include one of the `wanted` integers, which are sorted."""
    group = file.metadata.row_group(number)
    columns = map(group.column, range(group.num_columns))
    limits = next((column.statistics for column in columns if column.path_in_schema == name), None)
    if limits is None or not limits.has_min_max or not isinstance(limits.min, int):
        return True
    return bool(wanted.searchsorted(limits.min, "left") < wanted.searchsorted(limits.max, "right"))


def whole_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """Return the values of an integer column, sorted; None for other types, and if a value is NULL."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        return None
    return np.sort(np.concatenate([np.empty(0, np.int64), *map(numbers, column.cast(pa.int64()).chunks)]))
