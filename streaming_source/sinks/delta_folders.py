"""Delta tables in local folders, in a session without Delta: read and appended by delta-rs, through Arrow.

`read_delta` returns the rows of a table as a DataFrame, in each session. If Spark has no Delta, one task of Spark reads
the table in batches, so memory is bounded whatever the size of the table. `make_table` and `append_rows` are for small
tables that only one process writes. A table in a catalog, or on other storage, needs Delta in the session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_source.sinks.delta import has_delta, known_folder, no_delta_error
from streaming_source.sinks.sql_text import double_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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

    opened = DeltaTable(folder, version=version)
    reader = _Reader(folder, opened.version())
    return spark.range(0, 1, 1, 1).mapInArrow(reader, schema_of(opened))


def delta_folder(spark: SparkSession, table: str) -> str | None:
    """Return the local folder of a Delta table that exists; None if there is none."""
    folder = known_folder(spark, table)
    return folder if folder is not None and is_delta_folder(folder) else None


def folder_without_delta(spark: SparkSession, table: str) -> str | None:
    """Return the local folder of a Delta table that exists, if the session has no Delta; else None."""
    return None if has_delta(spark) else delta_folder(spark, table)


def newest_version(folder: str) -> int:
    """Return the number of the newest version of a table."""
    from deltalake import DeltaTable

    return DeltaTable(folder).version()


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

    def __call__(self, _: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
