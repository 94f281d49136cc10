"""Data files of a Delta table, written by the task that decodes their rows. The driver commits them.

`write_file` writes one Parquet file and returns its `DataFile`: name, size, rows and statistics, as Delta's log takes
them. A file without a commit is invisible, so a task that fails or runs twice changes nothing, and VACUUM removes its
file. `parquet_columns` decides about statistics and dictionaries: only types that every reader orders and compares
alike have them.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_source.sinks.storage import files_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

ROW_GROUP_BYTES: Final = 32 << 20
"""Bytes of decoded rows that a task holds before it writes a row group. Smaller groups compress worse."""
SAMPLE_ROWS: Final = 10_000
"""Number of first rows of a file that decide whether a column gets a dictionary, and whether it is compressed."""
LEAST_SAVED: Final = 0.1
"""Share of a column's bytes that compression must save. Hashes and pictures cost time and save nothing."""
_PHYSICAL_NAME: Final = b"delta.columnMapping.physicalName"
_FIELD_ID: Final = b"delta.columnMapping.id"


class NativeWriteError(Exception):
    """Reason why a table was not written without Spark."""


class DataFile(NamedTuple):
    """File in the folder of its table; `stats`: JSON, as in an `add` action of Delta's log."""

    path: str
    size: int
    rows: int
    stats: str

    def added(self, *, data_change: bool) -> AddAction:
        """Return the action that adds the file to the table.

        Args:
            data_change: whether the rows of the file are new to the table.
        """
        from deltalake.transaction import AddAction

        return AddAction(self.path, self.size, {}, int(time.time() * 1000), data_change, self.stats)


class ParquetColumns(NamedTuple):
    """Columns of a file by their names in files.

    Attributes:
        limited: columns with a minimum and a maximum.
        dictionary: columns that may have a dictionary.
    """

    limited: frozenset[str]
    dictionary: frozenset[str]


def physical_name(field: pa.Field) -> str:
    """Return the name of a Delta table's column in its files."""
    return (field.metadata or {}).get(_PHYSICAL_NAME, field.name.encode()).decode()


def parquet_columns(schema: pa.Schema) -> ParquetColumns:
    """Return the columns that get limits, and the columns that get dictionaries if their values repeat.

    delta-rs rounds the limits of DECIMALs to doubles. Spark misses -0.0 in dictionaries of FLOAT and DOUBLE. Readers
    truncate limits of text, bytes and times in different ways. So only integers and dates have limits, and only
    integers, dates and text have dictionaries.
    """
    import pyarrow as pa

    numbers = {physical_name(one) for one in schema if pa.types.is_integer(one.type) or pa.types.is_date(one.type)}
    text = {physical_name(one) for one in schema if pa.types.is_string(one.type)}
    return ParquetColumns(frozenset(numbers), frozenset(numbers | text))


def write_file(
    folder: str, schema: pa.Schema, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> DataFile | None:
    """Write rows as one Parquet file; return None if there are no rows.

    Args:
        folder: the folder of the table.
        schema: the schema of the table from delta-rs, with the names and numbers of column mapping.
        names: the columns of the table, in the order of the batches' columns.
        batches: the rows. Each batch may reuse the memory of the one before.

    Raises:
        NativeWriteError: the columns are not those of the table, or a value does not fit. No file is left.
    """
    wanted = _FileSchema(schema, names)
    path, files = f"part-{uuid.uuid4()}.snappy.parquet", files_in(folder)
    try:
        rows = wanted.write(partial(files.write, path), batches)
        return DataFile(path, files.size(path), rows, wanted.stats(rows)) if rows else None
    except BaseException:
        files.remove([path])
        raise


def remove_files(folder: str, files: Iterable[DataFile]) -> None:
    """Remove files that belong to no commit."""
    files_in(folder).remove(file.path for file in files)


class _FileSchema:
    """Columns of one file, and their limits in the rows written so far."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        import pyarrow as pa

        if sorted(names) != sorted(schema.names):
            raise NativeWriteError(f"its columns are {', '.join(schema.names)}, and rows have {', '.join(names)}")
        fields = [schema.field(name) for name in names]
        self._fields = fields
        self._schema = pa.schema([_in_file(field) for field in fields])
        self._columns = parquet_columns(schema)
        self._limits: dict[str, tuple[Any, Any]] = {}
        self._nulls = dict.fromkeys(sorted(self._columns.limited), 0)

    def write(self, new_file: Callable[[], pa.NativeFile], batches: Iterable[pa.RecordBatch]) -> int:
        """Write rows, and return their number. Without rows, no file is opened."""
        import pyarrow.parquet as pq

        rows = 0
        writer: pq.ParquetWriter | None = None
        with contextlib.ExitStack() as stack:
            for group in _groups(self._schema, map(self._fitted, batches)):
                if writer is None:
                    sample = group.slice(0, SAMPLE_ROWS)
                    dictionaries = self._dictionaries(sample)
                    writer = stack.enter_context(
                        pq.ParquetWriter(
                            stack.enter_context(new_file()),
                            self._schema,
                            compression=self._codecs(sample, dictionaries),
                            use_dictionary=dictionaries,
                            write_statistics=sorted(self._columns.limited),
                            store_schema=False,
                        )
                    )
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                self._take(group)
                rows += group.num_rows
        return rows

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the types of the table."""
        import pyarrow as pa

        try:
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, self._fields, strict=True)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NativeWriteError(f"its columns have other types: {error}") from error
        for array, field in zip(arrays, self._fields, strict=True):
            if array.null_count and not field.nullable:
                raise NativeWriteError(f"its column {field.name} is NOT NULL, and a row has no value for it")
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _dictionaries(self, sample: pa.Table) -> list[str]:
        """Return the columns that get a dictionary.

        If values hardly repeat, Arrow would build a dictionary and discard it.
        """
        import pyarrow.compute as pc

        names = sorted(self._columns.dictionary)
        return [name for name in names if 2 * pc.count_distinct(sample.column(name)).as_py() <= sample.num_rows]

    def _codecs(self, sample: pa.Table, dictionaries: Iterable[str]) -> dict[str, str]:
        """Return the codec by the path of a column: none if Snappy hardly shrinks its values."""
        found = {}
        for field in sample.schema:
            shrinks = field.name in dictionaries or _shrinks(sample.column(field.name))
            found[_path(field)] = "snappy" if shrinks else "none"
        return found

    def _take(self, group: pa.Table) -> None:
        import pyarrow.compute as pc

        for name in self._nulls:
            column = group.column(name)
            self._nulls[name] += column.null_count
            if column.null_count == len(column):
                continue
            found = pc.min_max(column)
            least, most = found["min"].as_py(), found["max"].as_py()
            if name in self._limits:
                least, most = min(least, self._limits[name][0]), max(most, self._limits[name][1])
            self._limits[name] = least, most

    def stats(self, rows: int) -> str:
        """Return the statistics of a file with so many rows."""
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: _stat(least) for name, (least, _) in self._limits.items()},
                "maxValues": {name: _stat(most) for name, (_, most) in self._limits.items()},
                "nullCount": self._nulls,
            },
            separators=(",", ":"),
        )


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch. The decoder overwrites the memory of a batch when the next batch is requested."""
    import pyarrow as pa

    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _in_file(field: pa.Field) -> pa.Field:
    """Return a column in the form of a file."""
    import pyarrow as pa

    number = (field.metadata or {}).get(_FIELD_ID)
    metadata = {} if number is None else {b"PARQUET:field_id": number}
    return pa.field(physical_name(field), field.type, field.nullable, metadata=metadata)


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.Table]:
    """Yield row groups of about ROW_GROUP_BYTES, as copies."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(copied(batch))
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _path(field: pa.Field) -> str:
    """Return the path of the values of a column in a Parquet file. Without it, a list would not be compressed."""
    import pyarrow as pa

    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def _shrinks(sample: pa.ChunkedArray) -> bool:
    """Return whether Snappy shrinks the values of a column."""
    import pyarrow as pa

    values = pa.concat_arrays(sample.chunks).buffers()[-1]  # a slice shares the buffers of the whole array
    if values is None or not values.size:
        return True
    return len(pa.Codec("snappy").compress(values)) <= (1 - LEAST_SAVED) * values.size


def _stat(value: Any) -> Any:
    return value if isinstance(value, int) else value.isoformat()


# Reading of files that a table already has, for the modules that rewrite them (`upkeep.py`, `rewritten_files.py`).


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
        """Return the action that removes the file from the table.

        Args:
            data_change: whether the rows of the file leave the table.
        """
        from deltalake.transaction import RemoveAction

        return RemoveAction(self.path, data_change, int(time.time() * 1000), self.size)


def files_of(table: DeltaTable) -> list[TableFile]:
    """Return the files of a table."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(table.get_add_actions())  # `pa.table` imports pandas
    found = reader.read_all().select(["path", "size_bytes", "modification_time", "num_records"])
    return [TableFile(*values) for values in zip(*(column.to_pylist() for column in found.columns), strict=True)]


def with_deletion_vectors(table: DeltaTable) -> frozenset[str]:
    """Return the paths of files with a deletion vector, as `files_of` has them."""
    return frozenset(path for path, _ in selection_vectors(table))


def selection_vectors(table: DeltaTable) -> Iterator[tuple[str, pa.BooleanArray]]:
    """Yield the path of each file with a deletion vector, and which of its rows are left.

    Raises:
        NativeWriteError: delta-rs reports a file that is not in the folder of the table.
    """
    import pyarrow as pa

    root = f"{table.table_uri.rstrip('/')}/"
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for uri, kept in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
            if not uri.as_py().startswith(root):
                raise NativeWriteError(f"its file {uri.as_py()} with deleted rows is not in its folder")
            yield uri.as_py().removeprefix(root), kept.values


def old_bytes(folder: str, files: Iterable[TableFile]) -> int:
    """Return the bytes of Parquet files in the folder of a table that belong only to older versions."""
    found = files_in(folder).sizes()
    size = sum(size for path, size in found if path.endswith(".parquet") and not path.startswith("_delta_log/"))
    return size - sum(file.size for file in files)


def rows_of(
    folder: str,
    files: Iterable[TableFile],
    schema: pa.Schema,
    deleted: Mapping[str, npt.NDArray[np.int64]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, with the columns of the table in its order, under their names in files.

    Columns are cast to the types of the table: a file of delta-rs may declare text as `string_view`, which few
    functions of pyarrow take.

    Args:
        folder: the folder of the table.
        files: its files.
        schema: the columns of the table.
        deleted: the positions of deleted rows by file, ascending. These rows are left out.

    Raises:
        NativeWriteError: a file does not have the rows that the log counts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [physical_name(field) for field in schema]
    stored = files_in(folder)
    for one in files:
        # Spark may have written times as INT96, whose range exceeds Arrow's default, nanoseconds.
        with stored.read(one.path) as opened, pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as file:
            existing = set(file.schema_arrow.names)
            known = [name for name in names if name in existing]
            read, gone = 0, (deleted or {}).get(one.path)
            for batch in file.iter_batches(_rows_at_once(file), columns=known):
                columns = [
                    batch.column(name).cast(field.type) if name in existing else pa.nulls(batch.num_rows, field.type)
                    for name, field in zip(names, schema, strict=True)
                ]
                rows = pa.RecordBatch.from_arrays(columns, names=names)
                yield rows if gone is None else _without(rows, gone, read)
                read += batch.num_rows
            if read != one.rows:
                raise NativeWriteError("its files do not have as many rows as the log says")


def _without(rows: pa.RecordBatch, deleted: npt.NDArray[np.int64], first: int) -> pa.RecordBatch:
    """Return rows without the deleted ones; `first`: the position of the first row in the file."""
    import numpy as np

    from replica.rows.types.arrow_arrays import array_of

    begin, end = deleted.searchsorted((first, first + rows.num_rows))
    if begin == end:
        return rows
    kept = np.ones(rows.num_rows, np.bool_)
    kept[deleted[begin:end] - first] = False
    return rows.filter(array_of(kept))


def _rows_at_once(file: pq.ParquetFile) -> int:
    about = file.metadata
    size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * about.num_rows // max(1, size)))
