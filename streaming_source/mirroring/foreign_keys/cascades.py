"""Application of a micro-batch's cascades to the targets, after its changes.

`Cascades.follow` deletes the rows that ON DELETE CASCADE deleted on the server, and sets the NULLs of SET NULL. If the
rows of a table cannot be determined, its control row says so, and the table is re-snapshot once no snapshot of an
ancestor table is running. `CascadeWalk` (`walk.py`) walks from the tables that lost rows to their child tables, and
only reads. `Cascades` writes child tables before their parents, so that a repeated micro-batch still finds the rows
that its first attempt did not change.

`defer_cascades` defers cascades into, or through, tables whose snapshot is running. When the snapshots are complete,
`past_changes` reads the changes since the deferral, and one walk over these changes finds the rows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from replica.errors import DisconnectedError, ReplicaError, SchemaError
from replica.handshake.start.start import server_position
from replica.protocol.gtid import GtidPosition, covers
from replica.schema.patterns import table_text
from replica.snapshot.check.facts import tables_above
from streaming_source.mirroring.apply.faults import of_machine, raise_fault
from streaming_source.mirroring.apply.table_applier import kept_in
from streaming_source.mirroring.batch.batch_facts import BatchFacts, collect_facts
from streaming_source.mirroring.batch.manifest import DELETES, UPDATES, ManifestSource
from streaming_source.mirroring.control.continuation import end_of, logged_end
from streaming_source.mirroring.control.control_table import CURRENT, NO_BATCH, DeferredCascade
from streaming_source.mirroring.control.states import doubted
from streaming_source.mirroring.foreign_keys.keys import KeptKeys
from streaming_source.mirroring.foreign_keys.walk import CascadeWalk, WalkRows
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.reading.resnapshot import RESNAPSHOT_HINT
from streaming_source.mirroring.settings import batch_options
from streaming_source.options.source_options import OPTIONS
from streaming_source.schema.target_modes import APPEND_LOG
from streaming_source.sinks.delta import has_delta
from streaming_source.sinks.queries import SPARK_ERRORS, unlogged_calls
from streaming_source.sinks.storage_faults import is_away

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.foreign_keys.keys import Link
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.offsets.offset import SourceOffset


# Why cascades are deferred: a snapshot chunk is read ahead of the stream and reconciled with the binlog, which has no
# cascades. Until the target has passed the position at which its last snapshot row was read, the target does not show
# which rows a cascade deleted, nor which child rows the same cascade changed. Cascades into or through such a table
# wait until then. Then they are determined from all changes since the deferral.


MARGIN_MS: Final = 60_000
"""Milliseconds of the binlog before a snapshot's beginning that the snapshot may lack, because of commits in flight."""


def ancestors_of(
    names: Collection[TableName], links: Mapping[TableName, list[Link]]
) -> dict[TableName, set[TableName]]:
    """Return the ancestors of each table: the tables to which it refers, directly or through other tables.

    Args:
        names: the tables.
        links: the foreign keys by parent table.
    """
    parents: dict[TableName, set[TableName]] = {}
    for parent, some in links.items():
        for link in some:
            parents.setdefault(link.child, set()).add(parent)
    return {name: tables_above(name, parents) for name in names}


def defer_cascades(
    rows: dict[TableName, ControlRow],
    ancestors: Mapping[TableName, AbstractSet[TableName]],
    coming: Collection[TableName],
    read: Collection[TableName],
    touched: Mapping[TableName, int],
    since: Callable[[], DeferredCascade],
) -> None:
    """Record in the rows which cascades a micro-batch defers.

    Args:
        rows: the rows of the control table. The function changes this dictionary.
        ancestors: the ancestors of each table.
        coming: tables whose snapshot was not complete before the micro-batch, or is not complete after it.
        read: the tables with snapshot rows in the micro-batch or after it.
        touched: the bits of `manifest.py` by table.
        since: returns the `DeferredCascade` of a deferral that begins with this micro-batch.
    """
    waited = {name for name, row in rows.items() if row.deferred_cascade is not None}
    for name, of_table in ancestors.items():
        row = rows[name]
        if not of_table or not row.live or row.mode == APPEND_LOG:
            rows[name] = row if row.deferred_cascade is None else followed(row)
            continue
        changed = {one for one in of_table if touched.get(one, 0) & (DELETES | UPDATES)}
        lost, foreign = bool(changed), not changed <= rows.keys()
        through = lost and any(one in coming or one in waited for one in of_table)
        known = row.deferred_cascade
        if known is None and (name in coming or through):
            known = since()
        if known is not None:
            now = known._replace(lost=known.lost or lost, foreign=known.foreign or foreign)
            begun = name in read or not of_table.isdisjoint(read) or row.deferred_cascade is None
            rows[name] = row._replace(deferred_cascade=now, snapshot_end=None if begun else row.snapshot_end)


def due(
    rows: Mapping[TableName, ControlRow],
    ancestors: Mapping[TableName, Collection[TableName]],
    reading: Callable[[TableName], bool],
) -> set[TableName]:
    """Return the tables with deferred cascades whose snapshots, and those of all ancestors, are complete.

    Args:
        rows: the rows of the control table.
        ancestors: the ancestors of each table.
        reading: returns True if snapshot rows of a table are still to come.
    """
    waiting = {name for name, row in rows.items() if row.deferred_cascade is not None}
    return {
        name for name in waiting if not any(one in rows and reading(one) for one in (name, *ancestors.get(name, ())))
    }


def reached(row: ControlRow, position: GtidPosition) -> bool:
    """Return True if a target at `position` has passed the end of its snapshot and of its ancestors' snapshots."""
    return row.snapshot_end is not None and covers(position, GtidPosition.parse(row.snapshot_end))


def followed(row: ControlRow) -> ControlRow:
    """Return a row without deferred cascades."""
    return row._replace(deferred_cascade=None, snapshot_end=None)


def lowest(positions: Iterable[str]) -> str:
    """Return the position with the least sequence number of each domain that all of these positions have."""
    parsed = [GtidPosition.parse(position) for position in positions]
    first, *others = parsed
    kept = []
    for gtid in first:
        same_domain = [other.get(gtid.domain_id) for other in others]
        same = [gtid, *(one for one in same_domain if one is not None)]
        if len(same) == len(parsed):
            kept.append(min(same, key=lambda one: one.seq_no))
    return str(GtidPosition(tuple(kept)))


def deferral_from(spark: SparkSession, checkpoint: str, number: int) -> DeferredCascade:
    """Return the `DeferredCascade` of a deferral that begins with a micro-batch.

    The deferral covers the changes from the end of the last micro-batch that was planned at least MARGIN_MS before the
    snapshot began. For the first micro-batch, it covers the changes from the start of the query.
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


_CIRCLE: Final = "foreign keys of several tables refer to each other in a circle."
_PAST: Final = (
    "the cascades into it during the snapshot are unknown: the changes since {since} cannot be read once more "
    "({error})."
)

RESNAPSHOT_EVERY_S: Final = 600.0
"""Seconds between two re-snapshots of a table because of its foreign keys, so that a persistent cause costs little."""

_NOTHING: Final = BatchFacts({}, {}, {}, {}, {}, {})

_log = logging.getLogger(__name__)


class Cascades:
    """Cascades of a mirror; one for each start."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._complete: set[TableName] | None = None
        """Tables whose rows were all delivered before the micro-batch, so that it has all of their changes."""
        self._read: dict[TableName, float] = {}
        self._keys = KeptKeys(settings)

    def follow(
        self,
        batch: DataFrame,
        number: int,
        facts: BatchFacts,
        rows: Mapping[TableName, ControlRow],
        begun: Collection[TableName],
        end: SourceOffset,
        reading: Callable[[TableName], bool],
    ) -> tuple[dict[TableName, ControlRow], dict[TableName, SchemaError]]:
        """Apply the cascades of a micro-batch.

        Args:
            batch: the manifests.
            number: the number of the micro-batch.
            facts: the facts of the micro-batch.
            rows: the rows of the control table after the changes of the micro-batch.
            begun: tables whose re-snapshot begins with the micro-batch.
            end: the end of the micro-batch.
            reading: returns True if snapshot rows of a table are still to come after the micro-batch.

        Returns:
            The control rows after the cascades, and the errors of tables to suspend.
        """
        found = dict(rows)
        if self._settings.on_cascade == "ignore":
            return found, {}
        links = self._keys.links(facts, found)
        read = {name for name, table in facts.tables.items() if table.reads}
        read |= {name for name in found if name in begun or reading(name)}
        coming = self._coming(facts, found, read, reading)
        spark, checkpoint = batch.sparkSession, self._settings.checkpoint
        ancestors = ancestors_of(found, links)
        defer_cascades(
            found, ancestors, coming, read, facts.touched, cache(partial(deferral_from, spark, checkpoint, number))
        )
        errors: dict[TableName, SchemaError] = {}
        if direct := _without({name for name, row in found.items() if row.deferred_cascade is not None}, links):
            walk = CascadeWalk(WalkRows(self._settings, batch, facts, found), direct, found.keys() - coming)
            walk.go(facts.touched)
            errors |= self._done(spark, walk, found, links)
        errors |= self._catch_up(spark, found, links, ancestors, end, reading)
        self._resnapshot_missed(number, found, links, reading)
        return found, errors

    def defer_since(
        self, name: TableName, position: str, rows: Mapping[TableName, ControlRow]
    ) -> dict[TableName, ControlRow]:
        """Return the rows of a table and of its descendants, with cascades deferred since a position."""
        if self._settings.on_cascade == "ignore":
            return {}
        ancestors = ancestors_of(rows, self._keys.links(_NOTHING, dict(rows)))
        concerned = {
            one for one, over in ancestors.items() if over and (one == name or name in over) and rows[one].live
        }
        since = DeferredCascade(position, position, lost=True)
        known = {one: rows[one].deferred_cascade or since for one in concerned}
        return {one: rows[one]._replace(deferred_cascade=known[one], snapshot_end=None) for one in concerned}

    def catch_up(
        self,
        spark: SparkSession,
        rows: dict[TableName, ControlRow],
        end: SourceOffset,
        reading: Callable[[TableName], bool],
    ) -> dict[TableName, SchemaError]:
        """Apply deferred cascades that are due after a micro-batch, outside `follow`.

        Args:
            spark: the session of the query.
            rows: the rows of the control table. The function changes this dictionary.
            end: the end of the micro-batch.
            reading: returns True if snapshot rows of a table are still to come after the micro-batch.

        Returns:
            The errors of tables to suspend.
        """
        links = self._keys.links(_NOTHING, rows)
        return self._catch_up(spark, rows, links, ancestors_of(rows, links), end, reading)

    def _coming(
        self,
        facts: BatchFacts,
        rows: Mapping[TableName, ControlRow],
        read: Collection[TableName],
        reading: Callable[[TableName], bool],
    ) -> set[TableName]:
        """Return the tables whose snapshot was running before or after the micro-batch.

        The micro-batch has only some of their changes.
        """
        before = self._complete
        if before is None:
            before = {name for name, row in rows.items() if row.state == CURRENT}
        complete = before | {name for name, row in rows.items() if _made(row, facts, reading)}
        self._complete = {name for name, row in rows.items() if row.live and not reading(name)}
        return {name for name in rows if name not in complete or name in read}

    def _catch_up(
        self,
        spark: SparkSession,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
        ancestors: Mapping[TableName, Collection[TableName]],
        end: SourceOffset,
        reading: Callable[[TableName], bool],
    ) -> dict[TableName, SchemaError]:
        """Apply deferred cascades into tables whose snapshots, and those of all ancestors, are complete.

        One walk covers all changes since the earliest deferral. A snapshot is complete when the stream has passed the
        position at which its last row was read.
        """
        ready = self._due(rows, due(rows, ancestors, reading), end)
        errors: dict[TableName, SchemaError] = {}
        if any(one.lost for one in ready.values()):
            since = lowest(one.since for one in ready.values())
            scope = {one for name in ready for one in (name, *ancestors[name])}
            _log.info("%s: applying the deferred cascades since %s", _named(ready), since)
            begun = time.monotonic()
            past: DataFrame | None = None
            try:
                past = past_changes(spark, self._settings, since, str(end.position))
                past.persist(kept_in(spark, self._settings))
                facts = collect_facts(past)
                in_scope = _without(rows.keys() - scope, links)
                began = dict.fromkeys(scope, end.position)  # the other tables are complete at this position
                began |= {name: GtidPosition.parse(one.began) for name, one in ready.items()}
                walk = CascadeWalk(WalkRows(self._settings, past, facts, rows), in_scope, rows.keys(), began)
                # A snapshot already includes the rows that tables outside the mirror lost before it began. So these
                # tables count only if they were touched during a snapshot (`foreign`).
                foreign = any(one.foreign for one in ready.values())
                walk.go({name: bits for name, bits in facts.touched.items() if foreign or name in rows})
                errors = self._done(spark, walk, rows, links)
            except (ReplicaError, *SPARK_ERRORS) as error:
                if of_machine(error):
                    raise
                if is_away(error):
                    _log.warning("%s: %s It is tried again after the next batch.", _named(ready), error)
                    return errors
                missed = _PAST.format(since=since or "the beginning", error=type(error).__name__)
                _log.warning("%s: %s", _named(ready), error)
                self._miss(rows, dict.fromkeys(ready, missed))
            finally:
                if past is not None:
                    past.unpersist()
            _log.info("%s: finished the deferred cascades in %.1f s", _named(ready), time.monotonic() - begun)
        for name in ready:
            rows[name] = followed(rows[name])
        return errors

    def _due(
        self, rows: dict[TableName, ControlRow], complete: Collection[TableName], end: SourceOffset
    ) -> dict[TableName, DeferredCascade]:
        """Return the deferred cascades of complete tables whose targets have passed the end of their snapshots."""
        unknown = [name for name in complete if rows[name].snapshot_end is None]
        if unknown:
            try:
                now = asyncio.run(server_position(self._settings.options.connection))
            except DisconnectedError as error:
                _log.warning("%s: %s It is tried again after the next batch.", _named(unknown), error)
            else:
                rows |= {name: rows[name]._replace(snapshot_end=str(now)) for name in unknown}
        passed = {name: rows[name] for name in complete if reached(rows[name], end.position)}
        return {name: one for name, row in passed.items() if (one := row.deferred_cascade) is not None}

    def _done(
        self,
        spark: SparkSession,
        walk: CascadeWalk,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
    ) -> dict[TableName, SchemaError]:
        """Apply the result of a walk as `onCascade` says; return the errors of tables to suspend."""
        if self._settings.on_cascade == "stop":
            return {name: _stopped(name, walk) for name in {*walk.found, *walk.missed}}
        self._write(spark, walk, rows, links)
        return {}

    def _write(
        self,
        spark: SparkSession,
        walk: CascadeWalk,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
    ) -> None:
        """Change the rows that the walk found, and record the tables whose rows could not be determined."""
        missed = dict(walk.missed)
        for name in _children_first(walk.found, links, missed):
            if name in missed:
                continue
            if not has_delta(spark):
                missed[name] = "its foreign keys need Spark's MERGE, and this session has no Delta."
                continue
            try:
                walk.found[name].write(spark, rows[name].target, mode_of(rows[name].mode, rows[name].keys))
            except SPARK_ERRORS as error:
                raise_fault(error, written=1)
                missed[name] = f"the changes by foreign keys could not be written: {type(error).__name__}."
        self._miss(rows, missed)

    def _miss(self, rows: dict[TableName, ControlRow], missed: Mapping[TableName, str]) -> None:
        for name, why in missed.items():
            if rows[name].missed_cascade is None:
                reason = f"{why} The table is re-snapshotted."
                _log.warning("%s: %s", table_text(name), reason)
                rows[name] = rows[name]._replace(error=reason, missed_cascade=reason)

    def _resnapshot_missed(
        self,
        number: int,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
        reading: Callable[[TableName], bool],
    ) -> None:
        """Start re-snapshots of tables whose rows may be wrong, once the snapshots of all ancestors are complete."""
        now = time.monotonic()
        over = ancestors_of({name for name, row in rows.items() if row.missed_cascade is not None}, links)
        for name in uppermost(over):
            row, tables = rows[name], {name, *over[name]} & rows.keys()
            coming = any(reading(one) or rows[one].waits_for is not None for one in tables)
            if row.live and not coming and now - self._read.get(name, -RESNAPSHOT_EVERY_S) >= RESNAPSHOT_EVERY_S:
                self._read[name] = now
                rows[name] = doubted(row, number, str(row.missed_cascade))


def uppermost(over: Mapping[TableName, Collection[TableName]]) -> list[TableName]:
    """Return the tables without an ancestor among the given tables, apart from tables in a circle with them.

    These tables are re-snapshot first. During the re-snapshot of an ancestor, cascades into its descendants would be
    missed again.

    Args:
        over: the ancestors of each table.
    """
    return [name for name, tables in over.items() if all(name in over[one] for one in over.keys() & set(tables))]


def _made(row: ControlRow, facts: BatchFacts, reading: Callable[[TableName], bool]) -> bool:
    """Return True if the micro-batch created the table without a snapshot, so that all of its rows are changes."""
    changes = facts.tables.get(row.name)
    return row.batch == NO_BATCH and not reading(row.name) and (changes is None or not changes.reads)


def _without(children: Collection[TableName], links: Mapping[TableName, list[Link]]) -> dict[TableName, list[Link]]:
    """Return the foreign keys whose child table is not in `children`."""
    kept = {parent: [link for link in some if link.child not in children] for parent, some in links.items()}
    return {parent: some for parent, some in kept.items() if some}


def _stopped(name: TableName, walk: CascadeWalk) -> SchemaError:
    why = (
        walk.missed.get(name)
        or f"{', '.join(sorted(walk.found[name].constraints))} changed its rows outside the binlog."
    )
    return SchemaError(f"onCascade=stop suspends the table: {why}", hint=RESNAPSHOT_HINT.format(table=table_text(name)))


def _children_first(
    found: Collection[TableName], links: Mapping[TableName, list[Link]], missed: dict[TableName, str]
) -> list[TableName]:
    """Return tables with children before their parents.

    In this order, a repeated micro-batch still finds the rows that its first attempt did not change.
    """
    children = {parent: {link.child for link in some} - {parent} for parent, some in links.items()}
    try:
        order = list(TopologicalSorter(children).static_order())
    except CycleError:
        missed |= dict.fromkeys(set(found) - missed.keys(), _CIRCLE)
        return []
    return [name for name in order if name in found]


def _named(names: Iterable[TableName]) -> str:
    return ", ".join(sorted(table_text(name) for name in names))


# Deferred cascades need changes that the mirror has already applied. These changes are read from the server's binlog
# once more, into a separate relay folder, as a batch of manifests.

_OF_ROWS: Final = {option.name.lower() for option in OPTIONS if option.scope == "rows"}
"""Options of the mirror's stream that select rows or change their shape."""


def past_changes(spark: SparkSession, settings: MirrorSettings, since: str, end: str) -> DataFrame:
    """Return the manifest of the changes after `since` and up to `end`.

    Raises:
        ReplicaError, PySparkException: the server cannot be reached, or does not have the changes any more.
    """
    of_rows = {name: value for name, value in settings.given.items() if name.lower() in _OF_ROWS}
    with unlogged_calls():  # the options have the password
        reader = spark.read.format(ManifestSource.name()).options(**batch_options(settings), **of_rows)
    return reader.options(startingPosition=since or "earliest", endingPosition=end).load()
