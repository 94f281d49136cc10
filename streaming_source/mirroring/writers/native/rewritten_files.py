"""Changes of a table, brought in by writing again those of its files that have rows of the same keys.

The task reads the keys of each file whose limits do not exclude them. Files with a changed key are copied without the
rows that changed, one record batch at a time, and the rows of the changes follow the last of them. A MERGE of delta-rs
is a query with a plan and a join: it takes half as long again for a million rows, and twice the memory. Commits are
the caller's: one that removes the old files and adds the new ones, and that is refused if any other came between.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from streaming_source.mirroring.batch.latest_rows import key_codes, numbers
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    physical_name,
    remove_files,
    write_file,
)
from streaming_source.mirroring.writers.native.table_files import rows_of, with_deletion_vectors
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.table_files import TableFile

MOST_BYTES: Final = 1 << 30
"""Files that one task writes again, in bytes: some ten seconds. Above, Spark marks rows as deleted on all cores."""
SMALL_BYTES: Final = 1 << 20
"""A table of this size is written again as one file, whichever rows changed, so it never has more than one."""
JOINED_BYTES: Final = 64 << 20
"""Files that are written again are joined up to this size."""
_APPEND_ONLY: Final = "delta.appendOnly"
_INVARIANT: Final = b"delta.invariants"


def is_rewritable(
    table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema, mode: str, keys: Sequence[str]
) -> bool:
    """Tell whether files of a table can be written again; else changes have to be merged into it.

    Args:
        table: the table.
        files: all of its files.
        schema: its columns, as delta-rs reports them.
        mode: the target's. A history is no set of rows by key.
        keys: the columns that tell rows apart. 0.0 and -0.0 are one key for a MERGE, and two for Arrow.
    """
    import pyarrow as pa

    if mode not in (CURRENT, SOFT_DELETE) or any(pa.types.is_floating(schema.field(key).type) for key in keys):
        return False
    return has_changeable_rows(table, files, schema) and not with_deletion_vectors(table)


def has_changeable_rows(table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema) -> bool:
    """Tell whether rows of a table may go, and its files be written again by their names.

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


def files_with_keys(folder: str, files: Sequence[TableFile], keys: FileKeys) -> list[TableFile]:
    """Return the files that have rows of some keys; of a table of SMALL_BYTES all.

    Args:
        folder: the folder of the table.
        files: all of its files.
        keys: the keys that changed.

    Raises:
        NativeWriteError: the files have more than MOST_BYTES.
    """
    small = sum(file.size for file in files) <= SMALL_BYTES
    found = list(files) if small else [file for file in files if keys.are_in(folder, file)]
    size = sum(file.size for file in found)
    if size > MOST_BYTES:
        raise NativeWriteError(f"its changes are in {size >> 20} MB of its files")
    return found


def rewritten(
    folder: str,
    files: Sequence[TableFile],
    schema: pa.Schema,
    keys: KeptRows,
    changes: pa.Table,
    gone: pa.ChunkedArray | None,
) -> list[DataFile]:
    """Write files of a table again as they are after some changes, and return the new ones.

    Args:
        folder: the folder of the table.
        files: those of its files that have rows of changed keys.
        schema: its columns.
        keys: tells which rows of the files stay: those without the keys of the changes.
        changes: the last change of each key, with the columns of the table by their names.
        gone: whether the row of a change is gone; None: each is there.

    Raises:
        NativeWriteError: a file does not hold what the log says of it, or a value does not fit. Nothing is left.
    """
    import pyarrow.compute as pc

    opened = (changes if gone is None else changes.filter(pc.invert(gone))).select(schema.names)
    added: list[DataFile] = []
    try:
        *groups, last = list(_joined(files)) or [[]]
        for group, rows in (*((group, []) for group in groups), (last, opened.to_batches())):
            new = write_file(folder, schema, schema.names, _rows(folder, group, schema, keys, rows))
            added += [] if new is None else [new]
    except BaseException:
        remove_files(folder, added)
        raise
    return added


def _rows(
    folder: str, files: Sequence[TableFile], schema: pa.Schema, changed: KeptRows, opened: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files whose keys did not change, and then others."""
    for batch in rows_of(folder, files, schema):
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
    """Interface that tells rows of files that stay from those that go."""

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay."""


class FileKeys:
    """Keys that changed, as the files of a table have them."""

    def __init__(self, schema: pa.Schema, keys: pa.Table) -> None:
        """Take the keys, a column each by the names of the table, with its types; `schema`: its columns."""
        self._changed = keys.rename_columns([physical_name(schema.field(name)) for name in keys.schema.names])
        self._names = self._changed.schema.names
        self._first = whole_numbers(self._changed.column(0))

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have none of the keys."""
        import pyarrow.compute as pc

        met = self._met(rows)
        return rows.filter(pc.invert(met)) if met.true_count else rows

    def are_in(self, folder: str, file: TableFile) -> bool:
        """Tell whether a file has one of the keys. Only row groups whose limits allow it are read."""
        import pyarrow.parquet as pq

        if not self._changed.num_rows:
            return False
        with pq.ParquetFile(Path(folder, file.path), coerce_int96_timestamp_unit="us") as there:
            if not set(self._names) <= set(there.schema_arrow.names):
                return True  # a file from before a column came: it is NULL in its rows
            first, name = self._first, self._names[0]
            groups = [
                one for one in range(there.num_row_groups) if first is None or limits_allow(there, one, name, first)
            ]
            return any(
                self._met(batch).true_count for batch in there.iter_batches(row_groups=groups, columns=self._names)
            )

    def _met(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Tell which rows have one of the keys."""
        import numpy as np
        import pyarrow as pa

        from replica.rows.types.arrow_arrays import array_of

        there = pa.Table.from_batches([rows.select(self._names)]).cast(self._changed.schema)
        both = pa.concat_tables([there, self._changed])
        (keys,) = both.combine_chunks().to_batches()
        codes = key_codes(keys, keys.schema.names)
        met = np.zeros(codes.max(initial=0) + 1, np.bool_)
        met[codes[rows.num_rows :]] = True
        return array_of(met[codes[: rows.num_rows]])


def limits_allow(file: pq.ParquetFile, number: int, name: str, wanted: npt.NDArray[np.int64]) -> bool:
    """Tell whether the limits of a column in a row group leave room for one of some integers, which are in order."""
    group = file.metadata.row_group(number)
    columns = map(group.column, range(group.num_columns))
    limits = next((column.statistics for column in columns if column.path_in_schema == name), None)
    if limits is None or not limits.has_min_max or not isinstance(limits.min, int):
        return True
    return bool(wanted.searchsorted(limits.min, "left") < wanted.searchsorted(limits.max, "right"))


def whole_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """Return the values of a column of integers in order; None for other types, and where one is NULL."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        return None
    return np.sort(np.concatenate([np.empty(0, np.int64), *map(numbers, column.cast(pa.int64()).chunks)]))
