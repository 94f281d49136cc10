"""The number of parts that the work of a batch is shuffled into, by how large the targets are.

In: the session of a batch, the rows of its largest target. Out: Spark's setting for it, in that session alone. Spark
begins with 200 parts whatever there is to do and joins small ones up behind the shuffle; each task then writes 200
small pieces, which is most of what a MERGE of some thousand rows costs. What the user has set is a limit, never raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
"""A checkpoint keeps nothing of this setting, as it does of `spark.sql.shuffle.partitions`."""
SNAPSHOT_PARTS: Final = "spark.databricks.delta.snapshotPartitions"
"""The number of parts that Delta deals the list of a table's files into when it reads that: 50, if nothing is set."""
MOST: Final = "spark.sql.shuffle.partitions"
MOST_SNAPSHOT_PARTS: Final = 50
ROWS_A_PART: Final = 500_000
"""A MERGE sorts a part of its target in memory: so many rows take some hundred megabytes."""


def shuffle_parts(rows: int, cores: int, most: int) -> int:
    """Return how many parts a target of so many rows is shuffled into."""
    return max(1, min(most, max(cores, -(-rows // ROWS_A_PART))))


class ShuffleSize:
    """The setting in the session of a mirror's query."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._most_of_snapshots = MOST_SNAPSHOT_PARTS

    def fit(self, spark: SparkSession, rows: int) -> None:
        """Set the number of parts for a batch whose largest target has so many rows."""
        if self._most is None:  # what stands there now is the user's
            self._most = int(spark.conf.get(PARTS, None) or spark.conf.get(MOST) or 1)
            self._most_of_snapshots = int(spark.conf.get(SNAPSHOT_PARTS, None) or MOST_SNAPSHOT_PARTS)
        parts = shuffle_parts(rows, spark.sparkContext.defaultParallelism, self._most)
        spark.conf.set(PARTS, str(parts))
        spark.conf.set(SNAPSHOT_PARTS, str(min(parts, self._most_of_snapshots)))
