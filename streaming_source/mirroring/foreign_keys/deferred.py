"""Defer cascades into tables whose snapshot is still running.

Snapshot rows are read ahead of the stream, and the binlog moves them back to the position of their micro-batch. It has
no cascades. So a target lacks rows that a cascade deleted after this position and before the snapshot read the table,
and does not show which rows below it the same cascade changed. Cascades into, or through, such a table are deferred
until the target has all rows and the position at which the server was when the last of them had been read. They are
then determined over all changes since.

In: the rows of the control table, the foreign keys, the tables whose snapshot is running. Out: the rows with their
deferred cascades.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.protocol.gtid import GtidPosition, covers
from replica.snapshot.check.cascades import tables_above
from streaming_source.mirroring.batch.touched_tables import DELETES, UPDATES
from streaming_source.mirroring.control.checkpoint import end_of, logged_end
from streaming_source.mirroring.control.control_row import DeferredCascade
from streaming_source.schema.target_modes import APPEND_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.foreign_keys.links import Link

MARGIN_MS: Final = 60_000
"""Milliseconds of the binlog that a snapshot may lack at its beginning, because of commits in flight."""


def above_each(names: Collection[TableName], links: Mapping[TableName, list[Link]]) -> dict[TableName, set[TableName]]:
    """Return the tables that each of these refers to, directly or through others."""
    parents: dict[TableName, set[TableName]] = {}
    for parent, some in links.items():
        for link in some:
            parents.setdefault(link.child, set()).add(parent)
    return {name: tables_above(name, parents) for name in names}


def defer_cascades(
    rows: dict[TableName, ControlRow],
    above: Mapping[TableName, AbstractSet[TableName]],
    coming: Collection[TableName],
    read: Collection[TableName],
    touched: Mapping[TableName, int],
    since: Callable[[], DeferredCascade],
) -> None:
    """Record in the rows which cascades a micro-batch defers.

    Args:
        rows: the rows of the control table, which it changes.
        above: the tables above each table.
        coming: tables with snapshot rows that were to come before the micro-batch, or are to come after it.
        read: those of them with snapshot rows in the micro-batch, or after it.
        touched: the bits of `touched_tables.py`.
        since: returns a cascade that is deferred from this micro-batch on.
    """
    waited = {name for name, row in rows.items() if row.deferred_cascade is not None}
    for name, over in above.items():
        row = rows[name]
        if not over or not row.live or row.mode == APPEND_LOG:
            rows[name] = row if row.deferred_cascade is None else followed(row)
            continue
        gone = {one for one in over if touched.get(one, 0) & (DELETES | UPDATES)}
        lost, foreign = bool(gone), not gone <= rows.keys()
        through = lost and any(one in coming or one in waited for one in over)
        known = row.deferred_cascade
        if known is None and (name in coming or through):
            known = since()
        if known is not None:
            now = known._replace(lost=known.lost or lost, foreign=known.foreign or foreign)
            begun = name in read or not over.isdisjoint(read) or row.deferred_cascade is None
            rows[name] = row._replace(deferred_cascade=now, snapshot_end=None if begun else row.snapshot_end)


def due(
    rows: Mapping[TableName, ControlRow],
    above: Mapping[TableName, Collection[TableName]],
    reading: Callable[[TableName], bool],
) -> set[TableName]:
    """Return the tables with deferred cascades that are complete, as are all tables above them."""
    waiting = {name for name, row in rows.items() if row.deferred_cascade is not None}
    return {name for name in waiting if not any(one in rows and reading(one) for one in (name, *above.get(name, ())))}


def reached(row: ControlRow, position: GtidPosition) -> bool:
    """Return True if a target at a position has all changes that its snapshot, and those above it, were read after."""
    return row.snapshot_end is not None and covers(position, GtidPosition.parse(row.snapshot_end))


def followed(row: ControlRow) -> ControlRow:
    """Return a row without deferred cascades."""
    return row._replace(deferred_cascade=None, snapshot_end=None)


def lowest(positions: Iterable[str]) -> str:
    """Return a position that is after none of these positions."""
    parsed = [GtidPosition.parse(position) for position in positions]
    first, *others = parsed
    kept = []
    for gtid in first:
        there = [other.get(gtid.domain_id) for other in others]
        same = [gtid, *(one for one in there if one is not None)]
        if len(same) == len(parsed):
            kept.append(min(same, key=lambda one: one.seq_no))
    return str(GtidPosition(tuple(kept)))


def deferral_from(spark: SparkSession, checkpoint: str, number: int) -> DeferredCascade:
    """Return a cascade that is deferred from a micro-batch on.

    It begins at the end of the last micro-batch that was planned at least MARGIN_MS before the snapshot began. For the
    first micro-batch it begins at the start of the query.
    """
    if number == 0:
        first = end_of(spark, checkpoint, 0)
        at = str((first.begin or first).resume)
        return DeferredCascade(at, at, lost=False)
    since, began, began_ms = "", "", 0
    for before in range(number - 1, -1, -1):
        logged = logged_end(spark, checkpoint, before)
        if logged is None:
            break  # Spark has removed older offsets
        since = str(logged.offset.resume)
        if not began_ms:
            began, began_ms = str(logged.offset.position), logged.planned_ms
        if logged.planned_ms <= began_ms - MARGIN_MS:
            break
    return DeferredCascade(since, began, lost=True)
