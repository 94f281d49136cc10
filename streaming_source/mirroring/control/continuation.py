"""Check that the next micro-batch continues the targets, as the control table describes them.

`is_applied` returns True if the targets already have the micro-batch. Spark repeats at most its last micro-batch, so
the next micro-batch is either the last one of the targets or its successor. `is_applied` refuses a checkpoint with any
other next micro-batch, such as a restored copy. `FencingCheck` and `check_fencing` refuse a control table that another
run writes with a copy of the checkpoint. `end_of` reads the end of a micro-batch from Spark's offset log.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from streaming_source.driver.hadoop_files import hadoop_text
from streaming_source.mirroring.control.control_table import NO_BATCH
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_table import ControlRow

CHECK_EVERY_S: Final = 60.0
"""Seconds between two checks for another run. Each check reads the control table."""
_HINT = (
    "Restore the checkpoint, the control table and the targets of one moment. If that is not possible, drop the "
    "control table and the targets, and start the mirror with a new checkpoint."
)


def is_applied(rows: Collection[ControlRow], number: int, end: SourceOffset, checkpoint: str) -> bool:
    """Return True if the targets already have a micro-batch.

    Args:
        rows: the rows of the control table.
        number: the number of the micro-batch.
        end: the end of the micro-batch.
        checkpoint: the checkpoint, for the message.

    Raises:
        ConfigError: micro-batches between the targets and the checkpoint are missing, or would be applied twice.
    """
    if not rows:
        return False
    newest = max(rows, key=lambda row: row.batch)
    last = newest.batch
    live = [row for row in rows if row.live]
    another = last == number and any(row.position != str(end.position) for row in live)
    if number < last or another:
        raise ConfigError(
            f"the checkpoint {checkpoint} is older than the targets: it is at batch {number} ({end.position}), and "
            f"they are at batch {last} ({newest.position}). The mirror would skip new changes as if it had applied "
            "them.",
            hint=_HINT,
        )
    if live and number > last + 1:
        raise ConfigError(
            f"the targets are older than the checkpoint {checkpoint}: they are at batch {last}, and it is at batch "
            f"{number}. The changes in between would be missing.",
            hint=_HINT,
        )
    return last == number


class FencingCheck:
    """Timer of the check that no other run writes the control table."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return True if it is time for a check, and start the next interval."""
        now = time.monotonic()
        if now - self._last < CHECK_EVERY_S:
            return False
        self._last = now
        return True


def check_fencing(ours: Collection[ControlRow], stored: Collection[ControlRow], control: str) -> None:
    """Refuse to continue if another run of the mirror also writes.

    Args:
        ours: the rows that this run wrote last.
        stored: the rows of the control table now.
        control: the name of the control table.

    Raises:
        ConfigError: the control table has rows that this run did not write.
    """
    if _places(ours) != _places(stored):
        raise ConfigError(
            f"another run of this mirror writes {control} and the targets, perhaps from a copy of the checkpoint: "
            f"it is at batch {_batch(stored)}, and this run wrote batch {_batch(ours)}.",
            hint="End the other run. The targets may lack changes now: drop the control table and the targets, and "
            "start one mirror with a new checkpoint.",
        )


def _places(rows: Collection[ControlRow]) -> set[tuple[object, ...]]:
    return {(row.name, row.batch, row.position) for row in rows}


def _batch(rows: Collection[ControlRow]) -> int:
    return max((row.batch for row in rows), default=NO_BATCH)


# The driver reads Spark's offset log itself, because a Spark job would cost a tenth of a second in each micro-batch.


_RESTORE_HINT = "Restore the checkpoint, and start the mirror again."


class LoggedEnd(NamedTuple):
    """End of a micro-batch, and when Spark planned the micro-batch.

    Attributes:
        planned_ms: milliseconds since 1970.
    """

    offset: SourceOffset
    planned_ms: int


def logged_end(spark: SparkSession, checkpoint: str, number: int) -> LoggedEnd | None:
    """Return the end of a micro-batch; None if Spark has not logged the end yet, or has removed it from its log."""
    written = hadoop_text(spark, f"{checkpoint}/offsets/{number}")
    if written is None:
        return None
    lines = written.splitlines()
    return LoggedEnd(SourceOffset.parse(json.loads(lines[-1])), int(json.loads(lines[1])["batchTimestampMs"]))


def end_of(spark: SparkSession, checkpoint: str, number: int) -> SourceOffset:
    """Return the end of the running micro-batch.

    Raises:
        ConfigError: the offset log of the checkpoint lacks the micro-batch.
    """
    found = logged_end(spark, checkpoint, number)
    if found is None:
        path = f"{checkpoint}/offsets/{number}"
        raise ConfigError(
            f"{path} does not exist: the checkpoint was changed while its mirror runs.", hint=_RESTORE_HINT
        )
    return found.offset
