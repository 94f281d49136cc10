"""The version of a target that belongs to a row of the control table.

In: a `ControlRow`. Out: the newest version of its target that holds no batch beyond the row's. Each commit of a mirror
says its mirror, batch and position as the user's metadata. Refused: a target of which no such version is kept.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from replica.errors import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control import ControlRow

METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def commit_metadata(mirror: str, batch: int, position: str) -> str:
    """Return what the commits of a batch say of themselves."""
    return json.dumps({"mirror": mirror, "batch": batch, "position": position})


def version_at(spark: SparkSession, row: ControlRow) -> int:
    """Return the version of the row's target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    history = spark.sql(f"DESCRIBE HISTORY {row.target}").select("version", "userMetadata").collect()
    for version, told in sorted(history, reverse=True):
        about = _read(told)
        if about.get("mirror") == row.mirror and int(str(about.get("batch", -1))) <= row.batch:
            return int(version)
    raise DataLossError(
        f"{row.target} has no version of the batch {row.batch} any more.",
        hint="Take a newer row of the control table, or keep the target's log for longer (delta.logRetentionDuration).",
    )


def newest_batch(spark: SparkSession, row: ControlRow) -> int | None:
    """Return the batch of the newest commit of the row's target; None where it is none of the mirror's."""
    (last,) = spark.sql(f"DESCRIBE HISTORY {row.target} LIMIT 1").select("userMetadata").collect()
    about = _read(last[0])
    return int(str(about["batch"])) if about.get("mirror") == row.mirror else None


def _read(told: str | None) -> dict[str, object]:
    try:
        value = json.loads(told or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
