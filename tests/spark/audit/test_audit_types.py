"""No false alarm: every type of the type table is equal in copies made of the stream's rows, typed and VARIANT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from streaming_source.auditing.call import audit
from tests.fixtures.mariadb import MariaDb
from tests.integration.edges.log import version
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_tables import tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.server]

DATABASE = "matrix"
MODES = "time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', character_set_connection = utf8mb4"


def changes(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("mariadb-binlog").options(**options).load()


def of_variant(rows: DataFrame, typed: StructType) -> DataFrame:
    """The rows as a mirror casts them: a TIME stays the text that it is in a VARIANT."""
    columns = []
    for field in typed.fields:
        kind = field.dataType.simpleString()
        kind = "string" if kind.startswith("interval") else kind
        columns.append(f.variant_get("after", f"$.{field.name}", kind).alias(field.name))
    return rows.select(*columns)


@pytest.mark.quick_on("newest")
@pytest.mark.parametrize("shape", ["variant", pytest.param("flat", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_no_value_of_any_type_is_a_false_alarm(
    spark: SparkSession, server_version: str, shape: str, tmp_path: Path
) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as server:
        user, password = server.add_user()
        known = tables([case for case in CASES if case.since <= version(server)])
        options = {"host": server.host, "port": str(server.port), "user": user, "password": password}
        statements = [statement for table in known for statement in (table.create, table.insert)]
        server.sql(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4", f"SET {MODES}", f"USE {DATABASE}", *statements)
        position = server.gtid_binlog_pos()
        copies = {}
        for table in known:
            name = f"{DATABASE}.{table.name}"
            typed = changes(spark, **options, endingPosition=position, table=name, rowShape="flat")
            typed = typed.drop(*(column for column in typed.columns if column.startswith("_")))
            if shape == "variant":
                many = changes(spark, **options, endingPosition=position, tables=name)
                typed = of_variant(many, typed.schema)
            typed.write.parquet(str(tmp_path / table.name))
            copies[name] = spark.read.parquet(str(tmp_path / table.name))
        server.sql(f"USE {DATABASE}", *(f"DELETE FROM {table.name} WHERE id > 0" for table in known))
        result = audit(spark, tables=copies, at=position, **options)
    assert result.equal, str(result)
    assert [audited.source_rows for audited in result.tables] == [table.rows for table in known]
