"""The version of a mirror's target that belongs to a batch, from the user metadata of the mirror's commits.

`version_of` returns the version before the mirror's first commit of a later batch. That version includes whatever
others wrote into the target until then. It is an error if the log of the target does not reach back to it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from replica.errors import DataLossError
from streaming_source.sinks.delta_folder import known_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def version_of(spark: SparkSession, target: str, mirror: str, batch: int) -> int:
    """Return the version of a target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    found = None
    for version, metadata in commits_of(spark, target):
        if batch_of(metadata, mirror) > batch:
            break
        found = version
    if found is None:
        raise DataLossError(
            f"{target} has no version of the batch {batch} any more.",
            hint="Audit again, because the control table has advanced. Keep the target's log longer "
            "(delta.logRetentionDuration).",
        )
    return found


def commits_of(spark: SparkSession, target: str) -> list[tuple[int, str | None]]:
    """Return version and user metadata of each commit in a target's log, the oldest first."""
    commits = _commits_without_spark(known_folder(spark, target))
    if commits is None:
        history = spark.sql(f"DESCRIBE HISTORY {target}").select("version", "userMetadata").collect()
        commits = [(int(version), metadata) for version, metadata in history]
    return sorted(commits, key=lambda commit: commit[0])


def _commits_without_spark(folder: str | None) -> list[tuple[int, str | None]] | None:
    """Return the commits as delta-rs reads them, in a hundredth of Spark's time; None if it cannot."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:  # deltalake is optional
        return None
    if folder is None:
        return None
    try:
        history = DeltaTable(folder).history()
    except (DeltaError, OSError) as refused:
        _log.debug("Spark reads the log of %s: %s", folder, refused)
        return None
    return [(int(one["version"]), one.get("userMetadata")) for one in history]


def batch_of(told: str | None, mirror: str) -> int:
    """Return the batch of a commit of the mirror; -1 for the commits of others."""
    try:
        about = json.loads(told or "{}")
    except ValueError:
        return -1
    if not isinstance(about, dict) or about.get("mirror") != mirror:
        return -1
    return int(str(about.get("batch", -1)))
