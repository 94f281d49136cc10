"""Differing rows in the differing buckets: missing in the copy, extra, different or doubled.

`find_differences` returns the number of rows of each kind, and some rows of each with both sides' values. Spark groups
the rows of these buckets by key and keeps those that differ. `shown` bounds the rows that reach the driver. A recheck
also takes the rows that differed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from streaming_source.auditing.result import KINDS, Difference
from streaming_source.auditing.rows.columns import hashed_value, row_text, shown_text, value_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame

    from streaming_source.auditing.rows.columns import ComparedColumn

# `bucket_summaries` returns a summary for each bucket of each side. The hash of a row is two xxHash64 of its values,
# with different seeds; MD5 of the row as text takes ten times as long. The hash of a bucket is the sum of its rows'
# hashes in four lanes of 32 bits. So the order of rows has no effect, but a doubled row changes the sum. Spark computes
# the summaries of both sides in one job with one shuffle, with one line for each side, bucket and task.


SEEDS: Final = (0, 1)
"""Values that are hashed before those of a row, one for each hash."""
LANES: Final = 2 * len(SEEDS)
LANE: Final = 1 << 32
"""Values of a lane. The sums of a lane fit into a BIGINT for up to 2000 million rows of a bucket."""
BUCKET: Final = "bucket"


class BucketSummary(NamedTuple):
    """Number of rows of a bucket, and their hash."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: object) -> BucketSummary:
        if not isinstance(other, BucketSummary):
            return NotImplemented
        lanes = zip(_lanes(self.hash), _lanes(other.hash), strict=True)
        return BucketSummary(self.rows + other.rows, _joined([(one + two) % LANE for one, two in lanes]))

    @property
    def text(self) -> str:
        """The hash as 32 hexadecimal digits."""
        return f"{self.hash:032x}"


class ComparedRows(NamedTuple):
    """Way in which the rows of a table are compared.

    Attributes:
        keys: the columns that identify a row; empty if whole rows are compared.
    """

    columns: tuple[ComparedColumn, ...]
    keys: tuple[str, ...]
    buckets: int

    def values(self, *, source: bool) -> list[Column]:
        """Return the texts of a side's values."""
        return [value_text(one.source if source else one.target, one.kind, one.name) for one in self.columns]

    def key(self, values: Sequence[Column]) -> Column:
        """Return the text that identifies a row."""
        wanted = [value for one, value in zip(self.columns, values, strict=True) if one.name in self.keys]
        return row_text(wanted or values)

    def hashes(self, *, source: bool) -> list[Column]:
        """Return the hashes of a side's rows, one BIGINT for each of SEEDS."""
        from pyspark.sql import functions as f

        hashed = [
            part
            for one in self.columns
            for part in hashed_value(one.source if source else one.target, one.kind, one.name)
        ]
        return [f.xxhash64(f.lit(seed), *hashed) for seed in SEEDS]

    def bucket(self, key: Column) -> Column:
        """Return the number of a key's bucket."""
        from pyspark.sql import functions as f

        return f.pmod(f.xxhash64(key), f.lit(self.buckets)).cast("int")


def bucket_summaries(
    source: DataFrame, target: DataFrame, compared: ComparedRows
) -> tuple[dict[int, BucketSummary], dict[int, BucketSummary]]:
    """Return the summary of each bucket in which a side has rows: those of the table, and those of the copy."""
    from pyspark.sql import functions as f

    names = [f"hash{seed}" for seed in SEEDS]
    sides = []
    for rows, ours in ((source, True), (target, False)):
        bucket = compared.bucket(compared.key(compared.values(source=ours)))
        hashes = [column.alias(name) for column, name in zip(compared.hashes(source=ours), names, strict=True)]
        sides.append(rows.select(f.lit(ours).alias("ours"), bucket.alias(BUCKET), *hashes))
    halves = [half for name in names for half in (f.shiftrightunsigned(name, 32), f.col(name).bitwiseAND(LANE - 1))]
    lanes = [f.sum(half).alias(f"lane{number}") for number, half in enumerate(halves)]
    found: tuple[dict[int, BucketSummary], dict[int, BucketSummary]] = ({}, {})
    for row in sides[0].unionAll(sides[1]).groupBy("ours", BUCKET).agg(f.count("*").alias("rows"), *lanes).collect():
        summary = BucketSummary(row["rows"], _joined([row[f"lane{number}"] % LANE for number in range(LANES)]))
        found[0 if row["ours"] else 1][row[BUCKET]] = summary
    return found


def _joined(lanes: Sequence[int]) -> int:
    joined = 0
    for lane in lanes:
        joined = joined << 32 | lane
    return joined


def _lanes(value: int) -> list[int]:
    return [value >> 32 * number & LANE - 1 for number in reversed(range(LANES))]


MOST_NAMED: Final = 0.5
"""Fraction of differing buckets above which all rows are compared, because a filter by buckets then saves nothing."""


class FoundDifferences(NamedTuple):
    """Number of differing rows of each kind, and some of the rows.

    Attributes:
        buckets: the number of buckets with such a row.
        passed: the number of rows that differ now and did not differ in the earlier comparison.
        rows: the rows for a recheck; None if the caller did not ask for them.
    """

    counts: dict[str, int]
    examples: tuple[Difference, ...]
    buckets: int = 0
    passed: int = 0
    rows: DataFrame | None = None


def find_differences(
    source: DataFrame,
    target: DataFrame,
    compared: ComparedRows,
    buckets: Collection[int],
    shown: int,
    *,
    before: DataFrame | None = None,
    keep: bool = False,
) -> FoundDifferences:
    """Compare the rows of these buckets by key.

    Args:
        source: rows of the table.
        target: rows of the copy.
        compared: how rows are compared.
        buckets: the buckets that differ.
        shown: the most examples of a kind.
        before: the rows that differed in an earlier comparison. Only rows that are in it, with the same row of the
            copy, count as differences.
        keep: whether to return the rows for a recheck.

    Raises:
        ConfigError: two rows of the table have one key.
    """
    from pyspark.sql import functions as f

    every = differing_keys(source, target, compared, buckets).persist()
    found = every if before is None else every.join(before, _same_row(every, before), "left_semi")
    try:
        counts = {row["kind"]: row["rows"] for row in found.groupBy("kind").agg(f.sum("rows").alias("rows")).collect()}
        if _AMBIGUOUS in counts:
            raise ConfigError(
                f"{', '.join(compared.keys)} is not a unique key of the table: two rows have the same key.",
                hint="Give all columns of a unique key (keys), or () to compare whole rows.",
            )
        return FoundDifferences(
            {kind: int(counts.get(kind, 0)) for kind in KINDS},
            _examples(found, compared, shown),
            len(buckets) if before is None else found.select(compared.bucket(f.col("key"))).distinct().count(),
            0 if before is None else every.count() - found.count(),
            found.select("key", _COPY).localCheckpoint() if keep else None,  # a second evaluation may differ
        )
    finally:
        every.unpersist()


def _same_row(found: DataFrame, before: DataFrame) -> Column:
    return (found["key"] == before["key"]) & found[_COPY].eqNullSafe(before[_COPY])


def differing_keys(source: DataFrame, target: DataFrame, compared: ComparedRows, buckets: Collection[int]) -> DataFrame:
    """Return one row for each key that differs.

    Its columns: `key`, `kind`, the number of `rows` of that kind, both sides' values as text, and the hash of the
    copy's row.
    """
    from pyspark.sql import functions as f

    ours = _side(source, compared, buckets, source=True)
    theirs = _side(target, compared, buckets, source=False)
    is_ours = f.col("ours")
    grouped = (
        ours.unionByName(theirs)
        .groupBy("key")
        .agg(
            f.count_if(is_ours).alias("here"),
            f.count_if(~is_ours).alias("there"),
            f.count_distinct("hash").alias("hashes"),
            f.first(f.when(is_ours, f.col("texts")), ignorenulls=True).alias("source"),
            f.first(f.when(~is_ours, f.col("texts")), ignorenulls=True).alias("target"),
            f.max(f.when(~is_ours, f.col("hash"))).alias(_COPY),
        )
    )
    kind, rows = _by_key() if compared.keys else _by_row()
    compared_rows = grouped.select("key", kind.alias("kind"), rows.alias("rows"), "source", "target", _COPY)
    return compared_rows.filter("kind IS NOT NULL")


_AMBIGUOUS: Final = "ambiguous"
_COPY: Final = "copy_hash"


def _by_key() -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    here, there = f.col("here"), f.col("there")
    kind = (
        f.when(here > 1, _AMBIGUOUS)
        .when(there == 0, "missing")
        .when(here == 0, "extra")
        .when(there > 1, "doubled")
        .when(f.col("hashes") > 1, "different")
    )
    return kind, f.when(there > 1, there - here).otherwise(f.lit(1))


def _by_row() -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    here, there = f.col("here"), f.col("there")
    kind = f.when(here > there, "missing").when((there > here) & (here == 0), "extra").when(there > here, "doubled")
    return kind, f.abs(here - there)


def _side(rows: DataFrame, compared: ComparedRows, buckets: Collection[int], *, source: bool) -> DataFrame:
    from pyspark.sql import functions as f

    values = compared.values(source=source)
    texts = [shown_text(one.source if source else one.target, one.kind) for one in compared.columns]
    key = compared.key(values)
    chosen = rows
    if len(buckets) <= MOST_NAMED * compared.buckets:
        chosen = chosen.filter(compared.bucket(key).isin(sorted(buckets)))
    return chosen.select(
        key.alias("key"),
        f.struct(*compared.hashes(source=source)).alias("hash"),
        f.array(*texts).alias("texts"),
        f.lit(source).alias("ours"),
    )


def _examples(found: DataFrame, compared: ComparedRows, shown: int) -> tuple[Difference, ...]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.row_number().over(Window.partitionBy("kind").orderBy("key"))
    rows = found.withColumn("place", place).filter(f.col("place") <= shown).collect()
    names = [one.name for one in compared.columns]
    made = []
    for row in sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["place"])):
        ours, theirs = (
            None if texts is None else dict(zip(names, texts, strict=True)) for texts in (row["source"], row["target"])
        )
        either = ours or theirs or {}
        key = {name: either[name] for name in names if name in (compared.keys or names)}
        made.append(Difference(row["kind"], key, ours, theirs, int(row["rows"])))
    return tuple(made)
