"""Bring what foreign keys cascaded in a micro-batch into the targets, behind its changes.

In: what the batch does to which table, the tables' rows of the control table behind their changes. Out: targets without
the rows that ON DELETE CASCADE took, and with the NULLs of SET NULL; the rows of the control table. Where it cannot be
told which rows those are, the table's row says so, and the table is read again once nothing above it is being read.

The walk goes down from the tables whose rows went, and only looks. What it finds is done from below: a batch that comes
again finds what is left of it.
"""

from __future__ import annotations

import logging
import time
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from streaming_source.mirroring.cascading.links import ask_keys, keys_behind, links_by_parent
from streaming_source.mirroring.cascading.walk import CascadeWalk
from streaming_source.mirroring.cascading.walk_rows import WalkRows
from streaming_source.mirroring.control_row import CURRENT, NO_BATCH, READING
from streaming_source.mirroring.faults import SPARK_ERRORS, fault_of_all
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.outlines.touched_tables import DELETES
from streaming_source.mirroring.reread import RESYNC, waiting
from streaming_source.mirroring.statement_scope import statements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from replica.table_reader.cascades import Cascade
    from streaming_source.mirroring.batch_facts import BatchFacts
    from streaming_source.mirroring.cascading.links import Link
    from streaming_source.mirroring.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings

_CIRCLE: Final = "foreign keys of several tables refer to each other in a circle. It is read again."
_READ: Final = (
    "rows that foreign keys took while the table was read may still be there. Audit it, with repair, or have it read "
    "again while no rows of the tables above it are deleted."
)
READ_AGAIN_EVERY_S: Final = 600.0
"""A table is read again for its foreign keys at most so often: where each batch leaves a doubt, it would never end."""

_log = logging.getLogger(__name__)


class Cascades:
    """One per start of a mirror."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._whole: set[TableName] | None = None
        """Tables of which all rows were delivered before the batch: the batch has all changes of theirs."""
        self._read: dict[TableName, float] = {}
        self._gone: dict[TableName, set[TableName]] = {}
        """The tables that lost rows since, by the table below them whose rows still come."""
        self._others: dict[TableName, tuple[Cascade, ...]] = {}

    def follow(
        self,
        batch: DataFrame,
        number: int,
        facts: BatchFacts,
        rows: Mapping[TableName, ControlRow],
        reading: Callable[[TableName], bool],
    ) -> tuple[dict[TableName, ControlRow], dict[TableName, SchemaError]]:
        """Return the tables' rows behind what was cascaded, and the errors of those that are to be set aside.

        `reading`: whether rows of a table are still to come behind the batch.
        """
        found = dict(rows)
        if self._settings.on_cascade == "ignore":
            return found, {}
        earlier = {name: row.cascades or () for name, row in found.items()}
        self._learn(facts, found)
        # What a statement of the batch took away may have cascaded before it.
        keys = {name: dict.fromkeys((*(row.cascades or ()), *earlier[name])) for name, row in found.items()}
        links = links_by_parent({**self._of_others(keys), **keys})
        before = self._whole
        if before is None:
            before = {name for name, row in found.items() if row.state == CURRENT}
        whole = before | {name for name, row in found.items() if _made(row, facts, reading)}
        self._whole = {name for name, row in found.items() if row.live and not reading(name)}
        errors: dict[TableName, SchemaError] = {}
        if links:
            walk = CascadeWalk(WalkRows(self._settings, batch, facts, found), links, whole)
            walk.go(facts.touched)
            if self._settings.on_cascade == "stop":
                errors = {name: _stopped(name, walk) for name in {*walk.found, *walk.missed}}
            else:
                self._follow(batch.sparkSession, walk, found, links)
            self._again(number, found, links, reading)
            self._tell_of_reads(facts, found, links, reading)
        return found, errors

    def _follow(
        self,
        spark: SparkSession,
        walk: CascadeWalk,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
    ) -> None:
        """Change the rows that were found, and note the tables of which they are not known."""
        missed = dict(walk.missed)
        for name in _from_below(walk.found, links, missed):
            if name in missed:
                continue
            try:
                walk.found[name].write(spark, rows[name].target, mode_of(rows[name].mode, rows[name].keys))
            except SPARK_ERRORS as error:
                fault = fault_of_all([error], written=1)
                if fault is not None:
                    raise fault from None
                missed[name] = f"what foreign keys changed could not be written: {type(error).__name__}."
        for name, why in missed.items():
            if rows[name].missed is None:
                _log.warning("%s: %s", ".".join(name), why)
                rows[name] = rows[name]._replace(error=why).with_missed(why)

    def _tell_of_reads(
        self,
        facts: BatchFacts,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
        reading: Callable[[TableName], bool],
    ) -> None:
        """Tell of tables above whose rows some went while theirs were read: what cascaded between the moment of a
        reading and the position that it was brought to is in no binlog, and may have stayed.
        """
        coming = {name for name in rows if reading(name) or (name in facts.tables and facts.tables[name].reads)}
        gone = {name for name, bits in facts.touched.items() if bits & DELETES}
        self._gone = {name: self._gone.get(name, set()) | gone & over for name, over in _above(coming, links).items()}
        for name in coming & facts.tables.keys():
            if facts.tables[name].reads and self._gone[name] and rows[name].live and rows[name].error is None:
                _log.warning("%s: %s", ".".join(name), _READ)
                rows[name] = rows[name]._replace(error=_READ)

    def _learn(self, facts: BatchFacts, rows: dict[TableName, ControlRow]) -> None:
        """Give each table the foreign keys that it has behind the batch."""
        said = {name: statements_of(facts, name) for name in {*rows, *(p for r in rows.values() for p in _parents(r))}}
        altered = {name for name, row in rows.items() if any(said.get(one) for one in (name, *_parents(row)))}
        wanted = {name for name, row in rows.items() if row.live and (row.cascades is None or name in altered)}
        if not wanted:
            return
        for name, now in ask_keys(self._settings.options, wanted).items():
            row = rows[name]
            texts = [one.sql for table in (name, *_parents(row)) for one in said.get(table, ())]
            keys = keys_behind(row.cascades, now, texts)
            if keys != row.cascades:
                _tell_of_foreign(name, keys, rows)
            rows[name] = row.with_cascades(keys)

    def _of_others(self, keys: Mapping[TableName, Iterable[Cascade]]) -> Mapping[TableName, Sequence[Cascade]]:
        """Return the foreign keys of tables that the mirror does not have, and that its tables refer to: by these, too,
        rows of its tables go. They are asked for once a start: of statements on such tables nothing is known.
        """
        known: Mapping[TableName, Iterable[Cascade]] = keys
        while new := {key.parent for some in known.values() for key in some} - keys.keys() - self._others.keys():
            known = ask_keys(self._settings.options, new)
            self._others |= dict.fromkeys(new, ()) | known
        return self._others

    def _again(
        self,
        number: int,
        rows: dict[TableName, ControlRow],
        links: Mapping[TableName, list[Link]],
        reading: Callable[[TableName], bool],
    ) -> None:
        """Ask for tables to be read again of which rows may be wrong, once all tables above them are whole."""
        now = time.monotonic()
        over = _above({name for name, row in rows.items() if row.missed is not None}, links)
        for name in uppermost(over):
            row, tables = rows[name], {name, *over[name]} & rows.keys()
            coming = any(reading(one) or rows[one].waits_for is not None for one in tables)
            if row.live and not coming and now - self._read.get(name, -READ_AGAIN_EVERY_S) >= READ_AGAIN_EVERY_S:
                self._read[name] = now
                rows[name] = waiting(row, number, str(row.missed), state=READING)


def uppermost(over: Mapping[TableName, Collection[TableName]]) -> list[TableName]:
    """Return the tables that have none of the others over them, but for those in one circle with them: while these are
    read, what is cascaded to the others is missed again.
    """
    return [name for name, tables in over.items() if all(name in over[one] for one in over.keys() & set(tables))]


def _made(row: ControlRow, facts: BatchFacts, reading: Callable[[TableName], bool]) -> bool:
    """Tell whether the table was made in this batch, and nothing of it is read: all of its rows are changes."""
    changes = facts.tables.get(row.name)
    return row.batch == NO_BATCH and not reading(row.name) and (changes is None or not changes.reads)


def _stopped(name: TableName, walk: CascadeWalk) -> SchemaError:
    why = walk.missed.get(name) or f"{', '.join(sorted(walk.found[name].told))} changed its rows, which no binlog has."
    return SchemaError(f"onCascade=stop asks to stop: {why}", hint=RESYNC.format(table=".".join(name)))


def _from_below(
    found: Collection[TableName], links: Mapping[TableName, list[Link]], missed: dict[TableName, str]
) -> list[TableName]:
    """Return tables in the order in which they are written: a batch that comes again finds what is left from above."""
    below = {parent: {link.child for link in some} - {parent} for parent, some in links.items()}
    try:
        order = list(TopologicalSorter(below).static_order())
    except CycleError:
        missed |= dict.fromkeys(set(found) - missed.keys(), _CIRCLE)
        return []
    return [name for name in order if name in found]


def _parents(row: ControlRow) -> list[TableName]:
    return [key.parent for key in row.cascades or ()]


def _above(names: Collection[TableName], links: Mapping[TableName, list[Link]]) -> dict[TableName, set[TableName]]:
    """Return the tables that each of these refers to, through all levels."""
    parents: dict[TableName, set[TableName]] = {}
    for parent, some in links.items():
        for link in some:
            parents.setdefault(link.child, set()).add(parent)
    found: dict[TableName, set[TableName]] = {}
    for name in names:
        over, left = found.setdefault(name, set()), [name]
        while left:
            new = parents.get(left.pop(), set()) - over
            over |= new
            left += new
    return found


def _tell_of_foreign(name: TableName, keys: Collection[Cascade], rows: Mapping[TableName, ControlRow]) -> None:
    for key in keys:
        if key.parent not in rows:
            _log.warning(
                "%s.%s: its foreign key %s (%s) refers to %s.%s, which the mirror does not have. Select that "
                "table, too: else this one is read again when rows of that one go, at most every ten minutes",
                *name,
                key.constraint,
                ", ".join(key.actions),
                *key.parent,
            )
