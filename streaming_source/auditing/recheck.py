"""The recheck of rows that differ if foreign keys may have changed them on the server after the position.

No binlog has the changes of CASCADE and SET NULL. So a read as of a position lacks rows that cascades deleted later,
while the copy has them. If no row of an ancestor table changed after the position, the first comparison counts.
Otherwise `rechecks` compares again when the mirror has reached a later position. Only rows that differ in both
comparisons, with the same row of the copy, count. A mirror that stands still while ancestor rows change is an error.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException

from replica.errors import ReplicaError
from replica.protocol.gtid import GtidPosition, covers
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.from_mirror import mirrored_copies
from streaming_source.auditing.result import LeftOut, TableAudit
from streaming_source.auditing.sources import position_now
from streaming_source.auditing.typed_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.comparison import Look
    from streaming_source.auditing.mirror.from_mirror import MirroredCopy

MOST_LOOKS: Final = 3
"""Most comparisons of a table. A row that is equal would have to be deleted and inserted again with the same values
before each of them.
"""
STILL_S: Final = 120.0
"""Seconds without a finished batch after which a mirror counts as standing still."""
POLL_S: Final = 2.0


class Rechecking(Protocol):
    """Compares a copy with its table. `before`: what differed in the last comparison; `last`: no comparison follows."""

    def __call__(self, copy: MirroredCopy, before: DataFrame | None, *, last: bool) -> Look: ...


def rechecks(
    spark: SparkSession,
    options: Mapping[str, str],
    control: str,
    copy: MirroredCopy,
    look: Rechecking,
    *,
    repair: bool,
) -> TableAudit | LeftOut:
    """Compare a copy with its table, and repeat until cascades cannot explain the differences.

    Errors of `look` pass through. With `repair`, the last comparison asks for a repair.
    """
    before: DataFrame | None = None
    for number in range(1, MOST_LOOKS + 1):
        found = look(copy, before, last=number == MOST_LOOKS or not copy.above)
        if found.differing is None or found.audit.equal:
            break
        now = position_now(options, copy.table)
        if not copy.unknown and not _rows_went(spark, options, copy, now):
            return look(copy, before, last=True).audit if repair else found.audit
        later = _later(spark, control, copy, now)
        if isinstance(later, LeftOut):
            return later
        copy, before = later, found.differing
    return found.audit


def _rows_went(spark: SparkSession, options: Mapping[str, str], copy: MirroredCopy, now: str) -> bool:
    """Return True if rows of ancestor tables were deleted or updated after the copy's position, or this is unknown."""
    if now == copy.position:
        return False
    asked = {"tables": ",".join(map(table_text, sorted(copy.above))), "operations": "delete,update"}
    asked |= {"startingPosition": copy.position or "earliest", "endingPosition": now}
    try:
        with typed_errors():
            rows = spark.read.format("mariadb-binlog").options(**options, **asked).load()
            return rows.limit(1).count() > 0
    except (ReplicaError, PySparkException):
        return True


def _later(spark: SparkSession, control: str, copy: MirroredCopy, position: str) -> MirroredCopy | LeftOut:
    """Wait until the mirror has reached a position, and return the copy there."""
    wanted = GtidPosition.parse(position)
    batch, moved = copy.batch, time.monotonic()
    while True:
        copies, left_out = mirrored_copies(spark, control)
        now = next((one for one in copies if one.table == copy.table), None)
        if now is not None and covers(GtidPosition.parse(now.position), wanted):
            return now
        reached = max((one.batch for one in copies), default=batch)
        if reached != batch:
            batch, moved = reached, time.monotonic()
        if time.monotonic() - moved > STILL_S:
            left = next((one for one in left_out if one.table == copy.table), None)
            return left or LeftOut(
                copy.table,
                f"rows differ, and foreign keys may have changed them after {copy.position}, which the binlog does not "
                "show. Only the progress of the mirror can show it, but the mirror stands still. Audit the table while "
                "the mirror runs, or while no rows are deleted from the tables that it refers to.",
            )
        time.sleep(POLL_S)
