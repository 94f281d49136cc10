"""The version of a mirror's target that belongs to a batch, by what the mirror's commits say of themselves.

In: the target, the mirror's id and the number of a batch. Out: the version before the mirror's first commit of a later
batch, so whatever anyone else wrote into the target until then is in it. Refused: a target of which no such version is
kept.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from replica.errors import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def version_of(spark: SparkSession, target: str, mirror: str, batch: int) -> int:
    """Return the version of a target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    history = spark.sql(f"DESCRIBE HISTORY {target}").select("version", "userMetadata").collect()
    found = None
    for version, told in sorted(history, key=lambda commit: int(commit[0])):
        if batch_of(told, mirror) > batch:
            break
        found = int(version)
    if found is None:
        raise DataLossError(
            f"{target} has no version of the batch {batch} any more.",
            hint="Ask again: the control table has gone on. Keep the target's log (delta.logRetentionDuration).",
        )
    return found


def batch_of(told: str | None, mirror: str) -> int:
    """Return the batch that a commit of the mirror is of; -1 for the commits of others."""
    try:
        about = json.loads(told or "{}")
    except ValueError:
        return -1
    if not isinstance(about, dict) or about.get("mirror") != mirror:
        return -1
    return int(str(about.get("batch", -1)))
