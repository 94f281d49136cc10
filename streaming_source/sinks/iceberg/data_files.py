"""Data files of an Iceberg table, which Spark's tasks read and write with PyIceberg and Arrow.

`read_rows` returns the rows of data files as a DataFrame. PyIceberg applies renames, new columns, wider types and
delete files. `write_rows` writes a DataFrame as Parquet files with field ids, and returns their descriptions for the
commit. Files that no commit names are invisible to readers.

The statistics must never hide a row. Bounds are dropped for floats with NaN, because readers place NaN differently, and
for columns of which a row group has no bounds, because Parquet omits bounds of long values.
"""

from __future__ import annotations

import pickle
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import DataLossError
from replica.protocol.plain_text import one_line
from streaming_source.schema.row_schema import arrow_schema
from streaming_source.sinks.iceberg.catalogs import file_io
from streaming_source.sinks.iceberg.columns import spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILE_BYTES: Final = 64 << 20
"""Bytes of Parquet after which a task begins another file. A change rewrites whole files."""
GROUP_BYTES: Final = 16 << 20
"""Bytes of Arrow in one row group, which a task holds in memory."""
_FLOATS: Final = frozenset({"float", "double"})


class IcebergFiles(NamedTuple):
    """What tasks need to read and write the files of a table; without snapshots, whose list grows.

    Attributes:
        properties: the properties of the storage, which may be secret. They reach tasks inside the pickled function.
    """

    metadata: TableMetadata
    properties: Mapping[str, str]
    schema: Schema

    @classmethod
    def of(cls, table: Table, metadata: TableMetadata, schema: Schema | None = None) -> IcebergFiles:
        """Return the files of a table; `metadata`: that of the table or of its transaction."""
        light = metadata.model_copy(update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}})
        return cls(light, dict(table.io.properties), schema or metadata.schema())

    def __repr__(self) -> str:
        return f"IcebergFiles({self.metadata.location!r})"

    def io(self) -> Any:
        """Return the access to the files."""
        return file_io(self.properties, self.metadata.location)


def read_rows(spark: SparkSession, files: IcebergFiles, tasks: Sequence[FileScanTask]) -> DataFrame:
    """Return the rows of data files. A task holds the rows of one file in memory."""
    schema = spark_schema(files.schema)
    if not tasks:
        return spark.createDataFrame([], schema)
    slices = min(len(tasks), max(1, spark.sparkContext.defaultParallelism))
    return spark.range(0, len(tasks), 1, slices).mapInArrow(_reader(files, tuple(tasks), schema), schema)


def _reader(
    files: IcebergFiles, tasks: tuple[FileScanTask, ...], schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        wanted = arrow_schema(schema)
        scan = ArrowScan(files.metadata, files.io(), files.schema, AlwaysTrue())
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for found in scan.to_record_batches([tasks[number]]):
                        yield pa.RecordBatch.from_arrays(
                            [found.column(place).cast(field.type) for place, field in enumerate(wanted)], schema=wanted
                        )
        except FileNotFoundError as error:
            raise DataLossError(
                f"a data file of the Iceberg table in {files.metadata.location} is missing: {one_line(str(error))}.",
                hint="Expire snapshots and remove orphan files later. Re-snapshot the table (mirror_resnapshot).",
            ) from None

    return read


def write_rows(rows: DataFrame, files: IcebergFiles) -> list[DataFile]:
    """Write rows, whose columns are those of the table in their order, and return the new files."""
    rows = rows.toDF(*(f"c{place}" for place, _ in enumerate(rows.columns)))  # mapInArrow splits names at dots
    found = rows.mapInArrow(_writer(files), "file BINARY").collect()
    return [pickle.loads(row["file"]) for row in found]  # noqa: S301  (from our own task)


def _writer(files: IcebergFiles) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from replica.rows.types.arrow_arrays import array_of_values

        found = [pickle.dumps(file) for file in new_files(files, batches)]
        kind = pa.schema([("file", pa.binary())])
        yield pa.RecordBatch.from_arrays([array_of_values(found, pa.binary())], schema=kind)

    return write


def new_files(files: IcebergFiles, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[DataFile]:
    """Write batches into new files of about FILE_BYTES, and return their descriptions."""
    import pyarrow as pa

    file: _OpenFile | None = None
    waiting: list[pa.Table] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        waiting.append(table)
        size += table.nbytes
        if size < GROUP_BYTES:
            continue
        file = file or _OpenFile(files)
        file.write(pa.concat_tables(waiting))
        waiting, size = [], 0
        if file.bytes >= FILE_BYTES:
            yield file.close()
            file = None
    if waiting:
        file = file or _OpenFile(files)
        file.write(pa.concat_tables(waiting))
    if file is not None:
        yield file.close()


class _OpenFile:
    """Parquet file that is being written."""

    def __init__(self, files: IcebergFiles) -> None:
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs, schema_to_pyarrow
        from pyiceberg.schema import sanitize_column_names
        from pyiceberg.table.locations import load_location_provider

        self._files = files
        self._schema = sanitize_column_names(files.schema)
        self._arrow = schema_to_pyarrow(self._schema, include_field_ids=True)
        places = load_location_provider(files.metadata.location, files.metadata.properties)
        self.path = places.new_data_location(data_file_name=f"{uuid.uuid4()}.parquet")
        self._output = files.io().new_output(self.path)
        self._stream = self._output.create(overwrite=False)
        settings = _get_parquet_writer_kwargs(files.metadata.properties)
        self._with_nan: set[int] = set()
        self._writer = pq.ParquetWriter(self._stream, schema=self._arrow, store_decimal_as_integer=True, **settings)

    @property
    def bytes(self) -> int:
        """Bytes that are written."""
        return int(self._stream.tell())

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [table.column(place).cast(field.type) for place, field in enumerate(self._arrow)]
        for place, column in enumerate(columns):
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(self._schema.fields[place].field_id)
        whole = pa.Table.from_arrays(columns, schema=self._arrow)
        self._writer.write_table(whole, row_group_size=max(1, whole.num_rows))

    def close(self) -> DataFile:
        """End the file, and return its description."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        self._writer.close()
        self._stream.close()
        parquet = self._writer.writer.metadata
        mapping = parquet_path_to_id_mapping(self._schema)
        plan = compute_statistics_plan(self._schema, self._files.metadata.properties)
        found = data_file_statistics_from_parquet_metadata(parquet, plan, mapping).to_serialized_dict()
        for number in _without_bounds(parquet, mapping, self._schema) | self._with_nan:
            found["lower_bounds"].pop(number, None)
            found["upper_bounds"].pop(number, None)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=len(self._output),
            sort_order_id=None,
            spec_id=self._files.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **found,
        )


def _without_bounds(parquet: Any, mapping: Mapping[str, int], schema: Schema) -> set[int]:
    """Return the field ids of columns whose bounds could hide rows, besides columns with NaN."""
    found, top = set(), {field.field_id for field in schema.fields}
    for group in range(parquet.num_row_groups):
        for place in range(parquet.num_columns):
            column = parquet.row_group(group).column(place)
            number = mapping[column.path_in_schema]
            known = column.statistics
            bounded = known is not None and known.has_min_max
            empty = known is not None and known.has_null_count and known.null_count == column.num_values
            nested = str(schema.find_type(number)) in _FLOATS and number not in top
            if nested or not (bounded or empty):
                found.add(number)
    return found
