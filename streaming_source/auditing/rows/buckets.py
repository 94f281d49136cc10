"""The comparison of a table with its copy by buckets of keys: row counts, and a 128-bit hash of the rows' values.

`bucket_summaries` returns a summary for each bucket of one side. The hash of a row is the MD5 of its text. The hash of
a bucket is the sum of its rows' hashes in four lanes of 32 bits. So the order of rows has no effect, and a doubled row
has one. Spark computes it in one shuffle, with one line a bucket and task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.auditing.rows.canonical import row_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from streaming_source.auditing.rows.columns import ComparedColumn

LANES: Final = 4
LANE: Final = 1 << 32
"""Values of a lane: its sums fit into a BIGINT for 2000 million rows of a bucket."""
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
    """How the rows of a table are compared. `keys` is empty if whole rows identify themselves."""

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

    def bucket(self, key: Column) -> Column:
        """Return the number of a key's bucket."""
        from pyspark.sql import functions as f

        return f.pmod(f.xxhash64(key), f.lit(self.buckets)).cast("int")


def bucket_summaries(rows: DataFrame, compared: ComparedRows, *, source: bool) -> dict[int, BucketSummary]:
    """Return the summary of each bucket in which a side has rows."""
    from pyspark.sql import functions as f

    values = compared.values(source=source)
    told = rows.select(compared.bucket(compared.key(values)).alias(BUCKET), row_hash(row_text(values)).alias("hash"))
    lanes = [
        f.sum(f.conv(f.substring("hash", 8 * number + 1, 8), 16, 10).cast("bigint")).alias(f"lane{number}")
        for number in range(LANES)
    ]
    found = told.groupBy(BUCKET).agg(f.count("*").alias("rows"), *lanes).collect()
    return {
        row[BUCKET]: BucketSummary(row["rows"], _joined([row[f"lane{number}"] % LANE for number in range(LANES)]))
        for row in found
    }


def row_hash(text: Column) -> Column:
    """Return the hash of a row's text, 32 hexadecimal digits."""
    from pyspark.sql import functions as f

    return f.md5(text.cast("binary"))


def _joined(lanes: Sequence[int]) -> int:
    joined = 0
    for lane in lanes:
        joined = joined << 32 | lane
    return joined


def _lanes(value: int) -> list[int]:
    return [value >> 32 * number & LANE - 1 for number in reversed(range(LANES))]
