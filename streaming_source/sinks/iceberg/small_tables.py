"""Small Iceberg tables beside targets, such as the control table. The driver reads and writes their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.schema.row_schema import arrow_schema, spark_type
from streaming_source.sinks.iceberg.catalogs import catalog_errors, catalog_of, load_table, parts_of
from streaming_source.sinks.iceberg.columns import iceberg_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_PROPERTIES: Final = {"format-version": "2", "write.metadata.delete-after-commit.enabled": "true"}


class SmallColumn(NamedTuple):
    """Column of a small table; `type`: the name of its Spark type."""

    name: str
    type: str
    comment: str


def make_small(name: str, columns: Sequence[SmallColumn]) -> None:
    """Create a table without rows, if it does not exist."""
    catalog, identifier = parts_of(name)
    with catalog_errors(catalog, name):
        catalog_of(catalog).create_table_if_not_exists(identifier, iceberg_schema(columns), properties=_PROPERTIES)


def append_small(spark: SparkSession, name: str, columns: Sequence[SmallColumn], rows: Sequence[object]) -> None:
    """Append rows in one commit, which PyIceberg repeats if another writer committed meanwhile."""
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(each.name, spark_type(each.type)) for each in columns])
    found = _cast(spark.createDataFrame(list(rows), schema).toArrow(), schema)
    table = load_table(name)
    with catalog_errors(parts_of(name)[0], name):
        table.append(found)


def small_rows(spark: SparkSession, table: Table, name: str) -> DataFrame:
    """Return the rows of the current snapshot.

    Args:
        spark: the session of the DataFrame.
        table: the table.
        name: its name, for errors.
    """
    schema = spark_schema(table.schema())
    with catalog_errors(parts_of(name)[0], name):
        found = table.scan().to_arrow()
    if not found.num_rows:  # Spark refuses an Arrow table without chunks
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(_cast(found, schema), schema)


def _cast(rows: pa.Table, schema: StructType) -> pa.Table:
    import pyarrow as pa

    wanted = arrow_schema(schema)
    return pa.Table.from_arrays([rows.column(each.name).cast(each.type) for each in wanted], schema=wanted)
