"""Let tables wait until what foreign keys cascaded into them can be followed, because tables are being read.

Rows that are read are brought to the position of their batch by the binlog, which does not have what cascaded
meanwhile; and a table that is being read does not tell what goes with rows that are still to come. So what goes down
into such a table, or through one, is put off until all of them are there, and is then followed over all changes since.
In: the rows of the control table, the foreign keys, which tables are being read. Out: the rows with what is put off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.protocol.gtid import GtidPosition
from replica.snapshot.check.cascades import tables_above
from streaming_source.mirroring.batch.touched_tables import DELETES, UPDATES
from streaming_source.mirroring.control.checkpoint import end_of, logged_end
from streaming_source.mirroring.control.control_row import DeferredCascade
from streaming_source.schema.target_modes import APPEND_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.foreign_keys.links import Link

MARGIN_MS: Final = 60_000
"""A table's reading may see less than the binlog had when it began: commits that were under way."""


def above_each(names: Collection[TableName], links: Mapping[TableName, list[Link]]) -> dict[TableName, set[TableName]]:
    """Return the tables that each of these refers to, through all levels."""
    parents: dict[TableName, set[TableName]] = {}
    for parent, some in links.items():
        for link in some:
            parents.setdefault(link.child, set()).add(parent)
    return {name: tables_above(name, parents) for name in names}


def put_off(
    rows: dict[TableName, ControlRow],
    above: Mapping[TableName, Collection[TableName]],
    coming: Collection[TableName],
    touched: Mapping[TableName, int],
    since: Callable[[], DeferredCascade],
) -> None:
    """Note in the rows what a batch puts off. `coming`: tables of which rows were still to come before the batch, or
    are behind it; `since`: returns what is put off from this batch on.
    """
    waited = {name for name, row in rows.items() if row.deferred_cascade is not None}
    for name, over in above.items():
        row = rows[name]
        if not over or not row.live or row.mode == APPEND_LOG:
            rows[name] = row if row.deferred_cascade is None else row._replace(deferred_cascade=None)
            continue
        gone = {one for one in over if touched.get(one, 0) & (DELETES | UPDATES)}
        lost, foreign = bool(gone), not gone <= rows.keys()
        through = lost and any(one in coming or one in waited for one in over)
        known = row.deferred_cascade
        if known is None and (name in coming or through):
            known = since()
        if known is not None:
            now = known._replace(lost=known.lost or lost, foreign=known.foreign or foreign)
            rows[name] = row._replace(deferred_cascade=now)


def due(
    rows: Mapping[TableName, ControlRow],
    above: Mapping[TableName, Collection[TableName]],
    reading: Callable[[TableName], bool],
) -> set[TableName]:
    """Return the tables of which, and of all tables above them, no row is still to come."""
    waiting = {name for name, row in rows.items() if row.deferred_cascade is not None}
    return {name for name in waiting if not any(one in rows and reading(one) for one in (name, *above.get(name, ())))}


def lowest(positions: Iterable[str]) -> str:
    """Return a position that lies behind none of these."""
    parsed = [GtidPosition.parse(position) for position in positions]
    first, *others = parsed
    kept = []
    for gtid in first:
        there = [other.get(gtid.domain_id) for other in others]
        same = [gtid, *(one for one in there if one is not None)]
        if len(same) == len(parsed):
            kept.append(min(same, key=lambda one: one.seq_no))
    return str(GtidPosition(tuple(kept)))


def put_off_from(spark: SparkSession, checkpoint: str, number: int) -> DeferredCascade:
    """Return what is put off from a batch on: all behind the end of one that was planned MARGIN_MS before its reading
    began at the earliest, and behind the start of the query for its first batch.
    """
    if number == 0:
        first = end_of(spark, checkpoint, 0)
        at = str((first.begin or first).resume)
        return DeferredCascade(at, at, lost=False)
    since, began, began_ms = "", "", 0
    for before in range(number - 1, -1, -1):
        logged = logged_end(spark, checkpoint, before)
        if logged is None:
            break  # Spark has removed it
        since = str(logged.offset.resume)
        if not began_ms:
            began, began_ms = str(logged.offset.position), logged.planned_ms
        if logged.planned_ms <= began_ms - MARGIN_MS:
            break
    return DeferredCascade(since, began, lost=True)
