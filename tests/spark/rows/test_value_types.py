"""Values that only Spark's own types show rightly, end to end from a binlog file: vectors, geometries, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]
WKB = bytes.fromhex("0101000000000000000000f03f0000000000000040")  # POINT(1 2)
LAST = "2106-02-07 06:28:15.999999", "2038-01-19 03:14:07.999999"


@pytest.fixture(scope="module")
def written(server_version: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    """A folder with a binlog file and the table's DDL; whether the table has a VECTOR."""
    folder = tmp_path_factory.mktemp("types")
    with MariaDb(server_version) as server:
        vectors = tuple(map(int, server.value("SELECT VERSION()").split(".")[:2])) >= (11, 7)
        ddl = (
            f"CREATE TABLE d.t (id INT PRIMARY KEY, {'v VECTOR(3), ' if vectors else ''}g GEOMETRY, z TEXT COMPRESSED, "
            "k VARCHAR(20) CHARACTER SET gbk, x INT) DEFAULT CHARSET=utf8mb4 WITH SYSTEM VERSIONING"
        )
        vector = "VEC_FromText('[1,-2,0.5]'), " if vectors else ""
        server.sql(
            "CREATE DATABASE d",
            ddl,
            "FLUSH BINARY LOGS",
            "SET SESSION binlog_row_image = MINIMAL",
            f"INSERT INTO d.t VALUES (1, {vector}ST_GeomFromText('POINT(1 2)', 4326), REPEAT('é', 300), '中文', 7)",
            "INSERT INTO d.t (id) VALUES (2)",
            "UPDATE d.t SET x = 8 WHERE id = 1",
            "DELETE FROM d.t WHERE id = 2",
        )
        (folder / "bin.000001").write_bytes((server.datadir / server.binlogs()[-1]).read_bytes())
    (folder / "schema.sql").write_text(f"{ddl};\n", encoding="utf-8")
    return folder, vectors


def read(spark: SparkSession, folder: Path, **options: Any) -> list[Row]:
    reader = spark.read.format("mariadb-binlog").option("schemaFile", str(folder / "schema.sql")).options(**options)
    return list(reader.option("path", str(folder / "bin.000001")).load().collect())


@pytest.mark.quick_on("newest")  # which has vectors
@pytest.mark.parametrize("geometry", ["binary", "spark"])
def test_vectors_geometries_and_versions(spark: SparkSession, written: tuple[Path, bool], geometry: str) -> None:
    folder, vectors = written
    rows = read(spark, folder, table="d.t", rowShape="flat", geometry=geometry)

    first = rows[0]
    assert (first.id, first.z, first.k, first.x) == (1, "é" * 300, "中文", 7)
    if vectors:
        assert first.v == [1.0, -2.0, 0.5]
    if geometry == "spark":
        assert (first.g.getSrid(), bytes(first.g.getBytes())) == (4326, WKB)
    else:
        assert bytes(first.g) == (4326).to_bytes(4, "little") + WKB
    assert str(first.row_end.replace(tzinfo=None)) in LAST

    # Closed versions and current ones, as SCD2 wants them; what MINIMAL left out is named and is not NULL.
    assert [(row.id, row.x, row._change_type) for row in rows if row._history] == [
        (1, 7, "insert"),
        (2, None, "update_postimage"),
    ]
    preimage = next(row for row in rows if row._change_type == "update_preimage")
    assert preimage._absent == [name for name in first.asDict() if name in ("v", "g", "z", "k", "x", "row_start")]
    assert preimage.x is None
    assert first._absent is None


@pytest.mark.quick_on("newest")
def test_the_same_as_variant(spark: SparkSession, written: tuple[Path, bool]) -> None:
    folder, vectors = written
    rows = read(spark, folder, tables="d.*")
    after = rows[0].after.toPython()
    assert (after["id"], after["z"], after["k"], after["x"]) == (1, "é" * 300, "中文", 7)
    assert after.get("v") == ([1.0, -2.0, 0.5] if vectors else None)
    assert after["g"] == (4326).to_bytes(4, "little") + WKB
    assert [row.history for row in rows] == [False, False, False, True, True]
    assert "x" in rows[2].absent.before
