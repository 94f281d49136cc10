"""Data files in the log of a Delta table: their properties and their rows.

In: a `DeltaTable` of delta-rs. Out: `TableFile`s, and record batches with the columns of the table. The modules that
rewrite files use it: `compaction.py` joins small files, `rewritten_files.py` applies changes.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.mirroring.writers.native.data_files import NativeWriteError, physical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable
    from deltalake.transaction import RemoveAction

_ROWS_AT_ONCE: Final = 50_000
_BYTES_AT_ONCE: Final = 32 << 20
"""Most encoded bytes of rows that are read together."""


class TableFile(NamedTuple):
    """File in the folder of its table.

    Attributes:
        size: bytes.
        modified_at: milliseconds since 1970.
        rows: number of rows; None if the log does not have it.
    """

    path: str
    size: int
    modified_at: int
    rows: int | None

    @property
    def is_plain(self) -> bool:
        """Whether the file is in the table's folder under the name in the log, and its rows are counted."""
        return self.rows is not None and not {"%", ":"} & set(self.path) and not self.path.startswith("/")

    def removed(self, *, data_change: bool) -> RemoveAction:
        """Return the action that removes the file; `data_change`: whether its rows leave the table."""
        from deltalake.transaction import RemoveAction

        return RemoveAction(self.path, data_change, int(time.time() * 1000), self.size)


def files_of(table: DeltaTable) -> list[TableFile]:
    """Return the files of a table."""
    import pyarrow as pa

    told = pa.RecordBatchReader.from_stream(table.get_add_actions())  # `pa.table` imports pandas
    found = told.read_all().select(["path", "size_bytes", "modification_time", "num_records"])
    return [TableFile(*values) for values in zip(*(column.to_pylist() for column in found.columns), strict=True)]


def with_deletion_vectors(table: DeltaTable) -> list[str]:
    """Return the addresses of files with a deletion vector."""
    import pyarrow as pa

    found = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().column("filepath").to_pylist()
    return [str(path) for path in found]


def old_bytes(folder: str, files: Iterable[TableFile]) -> int:
    """Return the bytes of Parquet files in the folder of a table that belong only to older versions."""
    there = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".parquet") and not place.endswith("_delta_log"):
                with contextlib.suppress(FileNotFoundError):  # VACUUM removed the file
                    there += Path(place, name).stat().st_size
    return there - sum(file.size for file in files)


def rows_of(folder: str, files: Iterable[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, with the columns of the table in its order, under their names in files.

    Columns are cast to the types of the table: a file of delta-rs may declare text as `string_view`, which few of
    pyarrow's functions take.

    Raises:
        NativeWriteError: a file does not have the rows that the log counts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [physical_name(field) for field in schema]
    for one in files:
        # Spark may have written times as INT96, whose range exceeds Arrow's default, nanoseconds.
        with pq.ParquetFile(Path(folder, one.path), coerce_int96_timestamp_unit="us") as file:
            there = set(file.schema_arrow.names)
            known = [name for name in names if name in there]
            read = 0
            for batch in file.iter_batches(_rows_at_once(file), columns=known):
                columns = [
                    batch.column(name).cast(field.type) if name in there else pa.nulls(batch.num_rows, field.type)
                    for name, field in zip(names, schema, strict=True)
                ]
                read += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, names=names)
            if read != one.rows:
                raise NativeWriteError("its files do not have as many rows as the log says")


def _rows_at_once(file: pq.ParquetFile) -> int:
    about = file.metadata
    size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * about.num_rows // max(1, size)))
