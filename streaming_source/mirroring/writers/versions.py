"""The commits of a mirror, which say as the user's metadata whose they are, of which batch and at which position.

In: a `ControlRow`. Out: the version of its target that belongs to it; whether the target has a commit of a batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streaming_source.auditing.mirror_versions import batch_of, commits_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_row import ControlRow

METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def commit_metadata(mirror: str, batch: int, position: str) -> str:
    """Return what the commits of a batch say of themselves."""
    return json.dumps({"mirror": mirror, "batch": batch, "position": position})


def version_at(spark: SparkSession, row: ControlRow) -> int:
    """Return the version of the row's target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    return version_of(spark, row.target, row.mirror, row.batch)


def has_batch(spark: SparkSession, row: ControlRow, batch: int) -> bool:
    """Tell whether the row's target has a commit of a batch; those of others may lie behind it."""
    return any(batch_of(told, row.mirror) == batch for _, told in commits_of(spark, row.target))
