"""Delta tables in local folders that delta-rs reads and appends to, through Arrow.

`read_delta` returns the rows of a table as a DataFrame, in each session. If Spark has no Delta, one task of Spark reads
the table in batches, so memory is bounded whatever the size of the table. `read_in_one_task` also reads small tables so
if Spark has Delta. `make_table` and `append_rows` are for small tables that only one process writes, in a session
without Delta. There, a table in a catalog, or on other storage, cannot be read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import DataLossError
from streaming_source.driver.deployment import SparkSetup
from streaming_source.sinks.delta import has_delta, known_folder, no_delta_error
from streaming_source.sinks.sql_text import double_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SMALL_BYTES: Final = 32 << 20
"""Most bytes of a table that one task reads although Spark has Delta.

Spark's Delta takes 1.4 CPU seconds for the log of any version, a task takes 0.1. With more rows, the tasks of all cores
are faster. `tools/bench/mirror/bench_large.py` has both.
"""
_FEATURES: Final = frozenset({"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz"})
"""Table features that delta-rs reads as Spark does; each was tested."""
_COMMENT = "comment"


def read_delta(spark: SparkSession, table: str, version: int | None = None) -> DataFrame:
    """Return the rows of a Delta table.

    Args:
        spark: a session, with or without Delta.
        table: the name of the table in SQL.
        version: the version to read; None for the newest one.

    Raises:
        AnalysisException: the session has Delta, and there is no such table.
        ConfigError: the session has no Delta, and the table is not a Delta table in a local folder.
    """
    if has_delta(spark):
        return spark.table(table) if version is None else spark.read.option("versionAsOf", version).table(table)
    folder = delta_folder(spark, table)
    if folder is None:
        raise no_delta_error(f"the table {table}, which is not a Delta table in a local folder,")
    from deltalake import DeltaTable

    return _rows_of(spark, folder, DeltaTable(folder, version=version))


def read_in_one_task(spark: SparkSession, table: str, version: int | None = None) -> tuple[int, DataFrame] | None:
    """Return the version and the rows of a Delta table that one task reads.

    Returns:
        None if Spark's Delta has to read the table: it is large, not in a local folder, or has other features, or
        executors on other machines may lack deltalake.
    """
    if has_delta(spark) and (find_spec("deltalake") is None or not _tasks_are_local(spark)):
        return None
    folder = delta_folder(spark, table)
    if folder is None:
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not has_delta(spark):
        opened = DeltaTable(folder, version=version)
        return opened.version(), _rows_of(spark, folder, opened)
    try:
        opened = DeltaTable(folder, version=version)
        protocol = opened.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        if features - _FEATURES or _bytes_of(opened) > SMALL_BYTES:
            return None
        return opened.version(), _rows_of(spark, folder, opened)
    except DeltaError:
        return None


def _tasks_are_local(spark: SparkSession) -> bool:
    from pyspark.sql import is_remote

    return not is_remote() and SparkSetup({"spark.master": spark.sparkContext.master}).tasks_are_local


def _bytes_of(table: DeltaTable) -> int:
    import pyarrow as pa

    return sum(pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist())


def _rows_of(spark: SparkSession, folder: str, opened: DeltaTable) -> DataFrame:
    reader = _Reader(folder, opened.version())
    return spark.range(0, 1, 1, 1).mapInArrow(reader, schema_of(opened))


def delta_folder(spark: SparkSession, table: str) -> str | None:
    """Return the local folder of a Delta table that exists; None if there is none."""
    folder = known_folder(spark, table)
    return folder if folder is not None and is_delta_folder(folder) else None


def is_delta_folder(folder: str) -> bool:
    """Return True if a folder has a Delta table."""
    from deltalake import DeltaTable

    return Path(folder).is_dir() and DeltaTable.is_deltatable(folder)


def schema_of(table: DeltaTable) -> StructType:
    """Return the columns of a table as Spark's Delta shows them, with comments and without column mapping."""
    from pyspark.sql.types import StructField, StructType

    stored = StructType.fromJson(json.loads(table.schema().to_json()))
    return StructType(
        [
            StructField(
                one.name,
                one.dataType,
                one.nullable,
                {name: text for name, text in (one.metadata or {}).items() if name == _COMMENT},
            )
            for one in stored
        ]
    )


def make_table(folder: str, schema: StructType) -> None:
    """Create a table without rows, if there is none."""
    from deltalake import DeltaTable, Schema

    if not is_delta_folder(folder):
        DeltaTable.create(folder, Schema.from_json(schema.json()), mode="ignore")


def append_rows(folder: str, rows: pa.Table) -> None:
    """Append rows to a table, in one commit."""
    from deltalake import write_deltalake

    write_deltalake(folder, rows, mode="append")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Function of the task that reads one version of a table.

    Attributes:
        folder: the folder of the table, which the executor has to see under this path.
    """

    folder: str
    version: int

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in given:  # Spark ends a Python process that has not read all of its input
            pass
        try:
            yield from self._batches()
        except Exception as error:  # delta-rs raises no other class for a file that is missing
            raise DataLossError(
                f"version {self.version} of {self.folder} cannot be read: {error}",
                hint="If its files were removed, re-snapshot the table.",
            ) from error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(self.folder, version=self.version)
        fields = [field.remove_metadata() for field in pa.schema(table.schema().to_arrow())]
        schema = pa.schema(fields)
        query = QueryBuilder().register("read", table)
        names = ", ".join(double_quoted(field.name) for field in fields)
        found = query.execute(f"SELECT {names} FROM read")  # noqa: S608  (the names are quoted)
        for batch in pa.RecordBatchReader.from_stream(found):
            columns = [column.cast(field.type) for column, field in zip(batch.columns, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
