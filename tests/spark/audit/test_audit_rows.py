"""The comparison of two sides by buckets and keys, on DataFrames alone: each planted fault is found and told apart."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from replica.errors import ConfigError, SchemaError
from streaming_source.auditing.rows.columns import compared_columns, key_columns, row_text
from streaming_source.auditing.rows.differences import (
    BucketSummary,
    ComparedRows,
    FoundDifferences,
    bucket_summaries,
    find_differences,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

BUCKETS = 16
ONE_BIT_MORE = struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", 0.1))[0] + 1))[0]


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(
        f.col("id"),
        f.concat(f.lit("name "), f.col("id")).alias("name"),
        (f.col("id") / 4).cast("decimal(12,2)").alias("price"),
        f.lit(0.1).alias("weight"),
        f.when(f.col("id") % 5 == 0, f.lit(None)).otherwise(f.lit("")).alias("note"),
    )


def compared(source: DataFrame, target: DataFrame, *keys: str, buckets: int = BUCKETS) -> ComparedRows:
    return ComparedRows(compared_columns("t", source.schema, target.schema, ()), keys, buckets)


def differing(source: DataFrame, target: DataFrame, told: ComparedRows) -> list[int]:
    ours, theirs = bucket_summaries(source, target, told)
    return sorted(number for number in ours.keys() | theirs.keys() if ours.get(number) != theirs.get(number))


def found(
    source: DataFrame, target: DataFrame, *keys: str, shown: int = 20, buckets: int = BUCKETS
) -> FoundDifferences:
    told = compared(source, target, *keys, buckets=buckets)
    return find_differences(source, target, told, differing(source, target, told), shown)


def with_value(target: DataFrame, key: int, column: str, value: Column) -> DataFrame:
    return target.withColumn(column, f.when(f.col("id") == key, value).otherwise(f.col(column)))


def ids_of_bucket(source: DataFrame, number: int) -> list[int]:
    told = compared(source, source, "id")
    key = told.key(told.values(source=True))
    return [
        row.id
        for row in source.filter(told.bucket(key) == number).filter("id % 5 <> 0").select("id").limit(5).collect()
    ]


def test_equal_sides_are_equal_in_any_order(spark: SparkSession) -> None:
    source = rows(spark, 1000)
    target = source.orderBy(f.desc("id")).repartition(7)
    told = compared(source, target, "id")
    assert differing(source, target, told) == []
    summary, copied = (sum(side.values(), BucketSummary()) for side in bucket_summaries(source, target, told))
    assert summary == copied
    assert summary.rows == 1000
    assert len(summary.text) == 32


@pytest.mark.parametrize(
    ("bucket", "fault"),
    [
        (0, "flipped"),
        (BUCKETS - 1, "flipped"),
        pytest.param(BUCKETS - 1, "missing", marks=pytest.mark.slow),
        (BUCKETS - 1, "doubled"),
        *(pytest.param(0, fault, marks=pytest.mark.slow) for fault in ("missing", "doubled", "stale", "emptied")),
        *(pytest.param(BUCKETS - 1, fault, marks=pytest.mark.slow) for fault in ("stale", "emptied")),
    ],
)
def test_one_fault_is_found_in_the_first_and_in_the_last_bucket(spark: SparkSession, bucket: int, fault: str) -> None:
    source = rows(spark, 1000)
    key, *_ = ids_of_bucket(source, bucket)
    target, kind = {
        "flipped": (with_value(source, key, "weight", f.lit(ONE_BIT_MORE)), "different"),
        "missing": (source.filter(f.col("id") != key), "missing"),
        "doubled": (source.unionAll(source.filter(f.col("id") == key)), "doubled"),
        "stale": (with_value(source, key, "price", f.lit("0.01").cast("decimal(12,2)")), "different"),
        "emptied": (with_value(source, key, "note", f.lit(None)), "different"),
    }[fault]
    told = compared(source, target, "id")
    assert differing(source, target, told) == [bucket]
    outcome = find_differences(source, target, told, [bucket], 20)
    assert {name: count for name, count in outcome.counts.items() if count} == {kind: 1}
    assert [one.key for one in outcome.examples] == [{"id": str(key)}]


def test_all_kinds_are_told_apart_with_both_rows(spark: SparkSession) -> None:
    source = rows(spark, 500)
    target = with_value(source, 3, "weight", f.lit(ONE_BIT_MORE)).filter("id NOT IN (4, 5)")
    target = target.unionAll(source.filter("id IN (6, 7)")).unionAll(source.filter("id = 7"))
    target = target.unionAll(rows(spark, 600).filter("id = 555"))
    outcome = found(source, target, "id")
    assert outcome.counts == {"missing": 2, "extra": 1, "different": 1, "doubled": 3}
    told = {(one.kind, one.key["id"]): one for one in outcome.examples}
    assert set(told) == {
        *(("missing", "4"), ("missing", "5"), ("extra", "555")),
        *(("different", "3"), ("doubled", "6"), ("doubled", "7")),
    }
    different = told["different", "3"]
    assert different.columns() == ["weight"]
    assert different.source is not None
    assert different.target is not None
    assert (different.source["weight"], different.target["weight"]) == ("0.1", "0.10000000000000002")
    assert told["missing", "5"].target is None
    assert told["extra", "555"].source is None
    assert told["doubled", "7"].rows == 2


def test_without_a_key_whole_rows_are_counted(spark: SparkSession) -> None:
    source = rows(spark, 10).unionAll(rows(spark, 3)).drop("id", "name")
    assert found(source, source.repartition(3)).counts == dict.fromkeys(("missing", "extra", "different", "doubled"), 0)
    target = (
        source.filter("price > 0")
        .unionAll(source.filter("price = 1.25"))
        .unionAll(source.filter("price = 1.25").withColumn("price", f.lit("77.00").cast("decimal(12,2)")))
    )
    outcome = found(source, target)
    assert outcome.counts == {"missing": 2, "extra": 1, "different": 0, "doubled": 1}
    assert [one.rows for one in outcome.examples if one.kind == "missing"] == [2]


def test_what_is_shown_is_bounded(spark: SparkSession) -> None:
    source = rows(spark, 3000)
    outcome = found(source, source.filter("id < 0"), "id", shown=7)
    assert outcome.counts["missing"] == 3000
    assert len(outcome.examples) == 7


@pytest.mark.slow
def test_values_next_to_each_other_do_not_meet(spark: SparkSession) -> None:
    schema = "id INT, a STRING, b STRING, c BINARY, d FLOAT"
    source = spark.createDataFrame(
        [
            (1, "x", "", b"", 0.0),
            (2, "", "x", b"\x00", -0.0),
            (3, None, "x", None, 1e-45),
            (4, "1:x", "N", b"N", 3.5),
            (5, "é", "e", b"\xc3", 16777216.0),
        ],
        schema,
    )
    others = (
        (1, "a", f.lit("x ")),
        (1, "b", f.lit(None)),
        (1, "c", f.lit(None)),
        (1, "d", f.lit(-0.0).cast("float")),
        (2, "c", f.lit(b"\x00\x00")),
        (2, "d", f.lit(0.0).cast("float")),
        (3, "a", f.lit("")),
        (3, "d", f.lit(0.0).cast("float")),
        (4, "b", f.lit(None)),
        (5, "a", f.lit("e\u0301")),
    )
    moved = source.filter("id = 1").withColumns({"a": f.lit(""), "b": f.lit("x")})
    changed = [with_value(source, key, column, value).filter(f.col("id") == key) for key, column, value in others]
    texts = compared(source, source, "id")
    both = source
    for other in (*changed, moved):
        both = both.unionAll(other)
    for told in ([row_text(texts.values(source=True))], *([one] for one in texts.hashes(source=True))):
        assert both.select(*told).distinct().count() == source.count() + len(others) + 1
    assert found(source, with_value(source, 1, "d", f.lit(-0.0).cast("float")), "id").counts["different"] == 1


@pytest.mark.slow
def test_wider_types_hold_the_same_values(spark: SparkSession) -> None:
    source = spark.sql(
        "SELECT 1 AS id, 7S AS a, 1.50 AS b, CAST(0.1 AS FLOAT) AS c, "
        "INTERVAL '-34 22:59:59.999990' DAY TO SECOND AS t, DATE'1582-10-10' AS d, "
        "CAST(NULL AS INTERVAL DAY TO SECOND) AS u"
    )
    field = next(field for field in source.schema.fields if field.name == "t")
    source = source.withColumn("t", f.col("t").alias("t", metadata={"mariadb.type": "time(5)"}))
    assert field.dataType.simpleString() == "interval day to second"
    target = spark.sql(
        "SELECT 1L AS ID, 7L AS a, CAST(1.5 AS DECIMAL(20,4)) AS B, CAST(CAST(0.1 AS FLOAT) AS DOUBLE) AS c, "
        "'-838:59:59.99999' AS t, DATE'1582-10-10' AS d, CAST(NULL AS STRING) AS u"
    )
    told = compared(source, target, "id")
    assert differing(source, target, told) == []
    for wrong in ("'-838:59:59.99998'", "'838:59:59.99999'", "'-838:59:59'"):
        other = target.withColumn("t", f.expr(wrong))
        assert found(source, other, "id").counts["different"] == 1
    with pytest.raises(SchemaError, match=r"column d is date, and timestamp in the copy"):
        compared(source, target.withColumn("d", f.expr("TIMESTAMP'2020-01-01'")), "id")
    with pytest.raises(SchemaError, match=r"column a is smallint, and tinyint"):
        compared(source, target.withColumn("a", f.expr("7Y")), "id")


def test_columns_of_one_side_are_refused_unless_they_are_left_out(spark: SparkSession) -> None:
    source = rows(spark, 5)
    target = source.withColumn("loaded_at", f.current_timestamp())
    with pytest.raises(SchemaError, match=r"the table has no column loaded_at"):
        compared(source, target, "id")
    with pytest.raises(SchemaError, match=r"the copy has no column note"):
        compared(source, source.drop("note"), "id")
    assert len(compared_columns("t", source.schema, target.schema, ["LOADED_AT"])) == 5
    bad = source.withColumn("m", f.create_map(f.lit("a"), f.lit(1)))
    told = compared(bad, bad, "id")
    with pytest.raises(SchemaError, match=r"type map<"):
        told.values(source=True)


def test_a_key_that_does_not_tell_rows_apart_is_refused(spark: SparkSession) -> None:
    source = rows(spark, 20)
    assert key_columns("t", source.schema, ["ID"]) == ("id",)
    assert key_columns("t", source.schema, None) == ()
    with pytest.raises(SchemaError, match="no column nope"):
        key_columns("t", source.schema, ["nope"])
    with pytest.raises(ConfigError, match="two rows have the same key"):
        found(source, source.filter("id > 3"), "note")


@pytest.mark.slow
def test_a_million_rows_with_one_fault_of_each_kind(spark: SparkSession) -> None:
    source = rows(spark, 1_000_000)
    target = with_value(source, 999_999, "weight", f.lit(ONE_BIT_MORE)).filter("id <> 500000")
    target = target.unionAll(source.filter("id = 123456")).unionAll(rows(spark, 1_000_001).filter("id = 1000000"))
    told = compared(source, target, "id", buckets=256)
    numbers = differing(source, target, told)
    assert 1 <= len(numbers) <= 4
    outcome = find_differences(source, target, told, numbers, 20)
    assert outcome.counts == {"missing": 1, "extra": 1, "different": 1, "doubled": 1}
    assert {one.key["id"] for one in outcome.examples} == {"999999", "500000", "123456", "1000000"}
