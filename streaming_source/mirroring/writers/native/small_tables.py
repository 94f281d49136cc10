"""Changes of a small table, brought in by writing all of its rows again as one file.

delta-rs plans each MERGE as a query, which costs a table of a few thousand rows more than its rows do. Here the task
reads the files, leaves out the rows whose keys have changes, and adds those of the changes. Commits are the caller's:
one that removes all files of the table and adds the new one, and that is refused if any other came between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.batch.latest_rows import key_codes
from streaming_source.mirroring.writers.native.data_files import physical_name, write_file
from streaming_source.mirroring.writers.native.table_files import rows_of, with_deletion_vectors
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.table_files import TableFile

MOST_BYTES: Final = 1 << 20
"""The largest table that is written again: above, a MERGE costs less."""
MOST_ROWS: Final = 50_000
"""Its rows at most: text that repeats is small in files, and is not in memory."""
_APPEND_ONLY: Final = "delta.appendOnly"
_INVARIANT: Final = b"delta.invariants"


def is_small(table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema, mode: str, keys: Sequence[str]) -> bool:
    """Tell whether a table can be written again; else changes have to be merged into it.

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
    metadata = table.metadata()
    ruled = any(_INVARIANT in (field.metadata or {}) for field in schema)
    if metadata.partition_columns or metadata.configuration.get(_APPEND_ONLY, "").lower() == "true" or ruled:
        return False
    if sum(file.size for file in files) > MOST_BYTES or sum(file.rows or 0 for file in files) > MOST_ROWS:
        return False
    return all(file.is_plain for file in files) and not with_deletion_vectors(table)


def written_again(
    folder: str,
    files: Sequence[TableFile],
    schema: pa.Schema,
    keys: Sequence[str],
    changes: pa.Table,
    gone: pa.ChunkedArray | None,
) -> DataFile | None:
    """Write the file that has the rows of a table after some changes; return None if there are none left.

    Args:
        folder: the folder of the table.
        files: all of its files.
        schema: its columns.
        keys: those that tell rows apart.
        changes: the last change of each key, with the columns of the table by their names.
        gone: whether the row of a change is gone; None: each is there.

    Raises:
        NativeWriteError: a file does not hold what the log says of it, or a value does not fit. Nothing is left.
    """
    import pyarrow.compute as pc

    opened = (changes if gone is None else changes.filter(pc.invert(gone))).select(schema.names)
    in_files = [physical_name(schema.field(key)) for key in keys]
    changed = changes.select(list(keys)).rename_columns(in_files)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in rows_of(folder, files, schema):
            kept = batch.filter(_unchanged(batch.select(in_files), changed))
            if kept.num_rows:
                yield kept
        yield from (batch for batch in opened.to_batches() if batch.num_rows)

    return write_file(folder, schema, schema.names, rows())


def _unchanged(rows: pa.RecordBatch, changed: pa.Table) -> pa.Array:
    """Tell which rows have keys that no change has."""
    import numpy as np
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of

    both = pa.concat_tables([pa.Table.from_batches([rows]).cast(changed.schema), changed])
    (keys,) = both.combine_chunks().to_batches()
    codes = key_codes(keys, keys.schema.names)
    met = np.zeros(codes.max(initial=0) + 1, np.bool_)
    met[codes[rows.num_rows :]] = True
    return array_of(~met[codes[: rows.num_rows]])
