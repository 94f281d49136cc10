"""The function for foreachBatch: a micro-batch into all its targets, and then the control table.

In: batches of one query over the selected tables, in order. Out: targets that are, table by table, what the server had
at the batch's end. A table that cannot go on is set aside with its reason, and the others go on. What is wrong with all
of them, or with the machine, ends the query; the batch then comes again.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

from replica.errors import ConfigError, PrerequisiteError, ReplicaError, SchemaError
from replica.schema.patterns import matcher
from streaming_source.mirroring.batch_end import end_of
from streaming_source.mirroring.batch_facts import TableChanges, look_through
from streaming_source.mirroring.cascading.cascades import Cascades
from streaming_source.mirroring.catalog_check import CatalogCheck
from streaming_source.mirroring.continuation import Alone, check_alone, is_there
from streaming_source.mirroring.control import make_control, mirrored_tables, write_control
from streaming_source.mirroring.control_row import CURRENT, DROPPED, NO_BATCH, READING, ControlRow
from streaming_source.mirroring.faults import SPARK_ERRORS, fault_of_all, raise_fault
from streaming_source.mirroring.full_disk import full_disk, full_disk_told
from streaming_source.mirroring.gone_targets import Presence, gone_error
from streaming_source.mirroring.kept_target import NewReading
from streaming_source.mirroring.lag import MirrorLag
from streaming_source.mirroring.merge_settings import TargetSize
from streaming_source.mirroring.merge_tables import MergeTables
from streaming_source.mirroring.metrics import metrics_of
from streaming_source.mirroring.repairs import Repairs
from streaming_source.mirroring.reread import RESYNC, ask_again, wait_s, waiting
from streaming_source.mirroring.sized_work import SizedWork
from streaming_source.mirroring.source_tables import hidden, read_source_tables, unreadable
from streaming_source.mirroring.statement_scope import statements_of, widen_views
from streaming_source.mirroring.suspension import kept, suspended, suspended_by_work
from streaming_source.mirroring.table_part import TablePart, kept_in
from streaming_source.mirroring.table_work import TableWork
from streaming_source.mirroring.targets import Targets
from streaming_source.mirroring.versions import METADATA, commit_metadata
from streaming_source.queries.ended_executions import forget_ended
from streaming_source.queries.short_errors import short_java_errors
from streaming_source.queries.side_by_side import side_by_side
from streaming_source.ruling.kept_rule import kept_rule

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch_facts import BatchFacts
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.source_tables import SourceTable, SourceTables
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.reading_options import ReadAgain

QUERY_ID = "sql.streaming.queryId"
_HIDDEN = (
    "the account has no SELECT on it, or not any more, so that its rows may not have been read. GRANT SELECT on it to "
    "the account."
)
_UNSETTLED = "it was altered each time that its definition was read."

_log = logging.getLogger(__name__)


class MirrorSink:
    """One per start of a mirror, called by the one thread of its query."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._rows: dict[TableName, ControlRow] | None = None
        self._first = True
        self._end: SourceOffset | None = None
        self._repairs = Repairs(settings)
        self._alone = Alone()
        self._presence = Presence(settings.parallel)
        self._work = SizedWork(settings.parallel)
        self._cascades = Cascades(settings)
        self._lag = MirrorLag()
        self._catalog = CatalogCheck(settings.options)
        self._merges = MergeTables(settings.options)

    def __repr__(self) -> str:
        return f"MirrorSink({self._settings!r})"

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Bring one micro-batch into the targets."""
        with full_disk_told("a micro-batch"), short_java_errors():
            spark = batch.sparkSession
            mirror = str(spark.sparkContext.getLocalProperty(QUERY_ID))
            if self._rows is None:
                self._rows = self._known(spark, mirror)
            elif self._alone.due():
                check_alone(self._rows.values(), self._known(spark, mirror).values(), self._settings.names.control)
            end = end_of(spark, self._settings.checkpoint, number)
            if is_there(self._rows.values(), number, end, self._settings.checkpoint):
                return  # only Spark's own note of that is not
            spark.conf.set(METADATA, commit_metadata(mirror, number, str(end.position)))
            if not self._rows:
                self._begin(spark, mirror)
            self._apply(batch, number, end)
            self._first, self._end = False, end
            self._work.fit(spark, TargetSize(max((row.rows for row in self._rows.values()), default=0), 0))
            self._serve_repairs(spark, end)
            forget_ended(spark)

    def _known(self, spark: SparkSession, mirror: str) -> dict[TableName, ControlRow]:
        rows = {row.name: row for row in mirrored_tables(spark, self._settings.names.control)}
        foreign = next((row for row in rows.values() if row.mirror != mirror), None)
        if foreign is not None:
            raise ConfigError(
                f"{self._settings.names.control} is the control table of another mirror, {foreign.mirror}.",
                hint="Start the mirror with that one's checkpoint, or name another control table and other targets.",
            )
        return rows

    def _begin(self, spark: SparkSession, mirror: str) -> None:
        """Make the targets of all tables that there are."""
        assert self._rows is not None  # noqa: S101
        names, checkpoint = self._settings.names, self._settings.checkpoint
        make_control(spark, names.control, names.control_namespace, checkpoint)
        found = read_source_tables(self._settings.options)
        self._settings.names.check(found.tables, {})
        targets = Targets(self._settings, spark, mirror)
        at_once, items = self._settings.parallel, sorted(found.tables.items())

        def begin(item: tuple[TableName, SourceTable]) -> ControlRow | Exception:
            name, table = item
            if table.unsettled:
                return SchemaError(_UNSETTLED, hint=RESYNC.format(table=".".join(name)))
            try:
                return targets.begin(name, table, str(found.position))
            except SPARK_ERRORS as error:  # the catalog does not take a name, or a type
                return error

        made = side_by_side(spark, begin, items, at_once=at_once, name="mirror-begin")
        outcomes = {name: one for (name, _), one in zip(items, made, strict=True)}
        self._rows |= {name: one for name, one in outcomes.items() if isinstance(one, ControlRow)}
        broken = {name: one for name, one in outcomes.items() if isinstance(one, Exception)}
        fault = next(iter(broken.values()), None) if not self._rows else fault_of_all(broken.values(), written=1)
        if fault is not None:
            raise fault
        for name, why in broken.items():
            self._rows[name] = suspended(spark, targets.row(name, found.tables[name], str(found.position)), why)

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _apply(self, batch: DataFrame, number: int, end: SourceOffset) -> None:
        assert self._rows is not None  # noqa: S101
        batch.persist(kept_in(batch.sparkSession, self._settings))  # every action on it walks over the binlog again
        try:
            facts = look_through(batch)
            begun = self._read_again(batch.sparkSession, number, end)
            self._refuse(batch.sparkSession, end)
            self._meet_new(batch.sparkSession, number, facts)
            self._miss_gone(batch.sparkSession, facts)
            works = self._works(batch, number, facts, begun)
            rows = {**self._rows, **self._run(works)}
            rows = self._cascaded(batch, number, facts, rows, begun, end)
        finally:
            batch.unpersist()
        now = dt.datetime.now(dt.UTC)
        behind = self._lag.at(now, self._commit_times(facts), end)
        waited = {row.waits_for for row in self._rows.values()}
        for name in self._hidden(rows, end):
            rows[name] = suspended(batch.sparkSession, rows[name], _hidden_error(name))
        for name, row in rows.items():
            if row.live:
                whole = _is_whole(row, end)
                row = row.with_before(None) if whole and row.before is not None else row  # noqa: PLW2901
                row = row._replace(  # noqa: PLW2901
                    state=CURRENT if whole else READING,
                    position=str(end.position),
                    batch=number,
                    tries=0 if whole else row.tries,
                    lag=behind,
                )
            else:
                row = row._replace(lag=None)  # noqa: PLW2901
            self._rows[name] = row._replace(updated_at=now)
        self._doubt(batch.sparkSession, number, facts, end)
        self._refuse_unreadable(batch.sparkSession, waited)
        self._work.fit(batch.sparkSession, TargetSize(len(self._rows), len(self._rows)))
        write_control(batch.sparkSession, self._settings.names.control, self._rows.values())
        metrics_of(batch.sparkSession, self._settings.names.control).of_tables(self._rows.values())
        for row in self._waiting_since(waited):
            ask_again(self._settings.checkpoint, [row.name], str(row.waits_for), wait_s=wait_s(row))

    def _commit_times(self, facts: BatchFacts) -> list[tuple[dt.datetime | None, dt.datetime | None]]:
        assert self._rows is not None  # noqa: S101
        rows = self._rows
        return [
            (table.committed_at, rows[name].made_at if name in rows else None) for name, table in facts.tables.items()
        ]

    def _cascaded(
        self,
        batch: DataFrame,
        number: int,
        facts: BatchFacts,
        rows: dict[TableName, ControlRow],
        begun: Collection[TableName],
        end: SourceOffset,
    ) -> dict[TableName, ControlRow]:
        """Bring in what foreign keys changed beside the batch."""
        rows, stopped = self._cascades.follow(batch, number, facts, rows, begun, end, lambda name: _is_read(name, end))
        return rows | {name: suspended(batch.sparkSession, rows[name], error) for name, error in stopped.items()}

    def _serve_repairs(self, spark: SparkSession, end: SourceOffset) -> None:
        """Do the repairs that audits ask for, and bring in what foreign keys changed since: a row that is put in may
        have gone by one, and have taken rows along.
        """
        assert self._rows is not None  # noqa: S101
        rows = self._rows
        followed: set[TableName] = set()

        def before(name: TableName, position: str) -> None:
            later = self._cascades.put_off_since(name, position, rows)
            if later:
                rows.update({one: row._replace(state=READING) for one, row in later.items()})
                followed.update(later)
                write_control(spark, self._settings.names.control, rows.values())  # a crash may come behind it

        self._repairs.serve(spark, rows, before)
        if not followed:
            return
        stopped = self._cascades.catch_up(spark, self._rows, end, lambda name: _is_read(name, end))
        self._rows |= {name: suspended(spark, self._rows[name], error) for name, error in stopped.items()}
        for name, row in self._rows.items():
            if row.live and _is_whole(row, end):
                self._rows[name] = row._replace(state=CURRENT)
        write_control(spark, self._settings.names.control, self._rows.values())

    def _refuse(self, spark: SparkSession, end: SourceOffset) -> None:
        """Suspend tables of which the stream brings no more rows: they cannot be read."""
        assert self._rows is not None  # noqa: S101
        for name, why in end.refused:
            if name in self._rows and self._rows[name].live:
                self._rows[name] = suspended(spark, self._rows[name], PrerequisiteError(why))

    def _miss_gone(self, spark: SparkSession, facts: BatchFacts) -> None:
        """Suspend tables whose targets something else removed; an earlier try of a batch with statements may have."""
        assert self._rows is not None  # noqa: S101
        if not self._presence.due():
            return
        live = [row for row in self._rows.values() if row.live and row.batch != NO_BATCH]
        for row in self._presence.gone(spark, [row for row in live if not statements_of(facts, row.name)]):
            self._rows[row.name] = suspended(spark, row, gone_error(row, RESYNC.format(table=".".join(row.name))))

    def _hidden(self, rows: dict[TableName, ControlRow], end: SourceOffset) -> list[TableName]:
        """Return the tables whose reading is over with this batch, and that the account may not read: their rows may
        have been left out, as if they were dropped.
        """
        begun = [name for name, row in rows.items() if row.live and row.state == READING]
        over = [name for name in begun if not _is_read(name, end)]
        return hidden(self._settings.options, over) if over else []

    def _waiting_since(self, waited: Collection[str | None]) -> list[ControlRow]:
        """Return the rows of tables that wait to be read again, and did not for one of these requests."""
        assert self._rows is not None  # noqa: S101
        return [row for row in self._rows.values() if row.waits_for is not None and row.waits_for not in waited]

    def _doubt(self, spark: SparkSession, number: int, facts: BatchFacts, end: SourceOffset) -> None:
        """Have tables read again of which the batch cannot have told everything."""
        assert self._rows is not None  # noqa: S101
        foreign = facts.touched.keys() - {row.name for row in self._rows.values() if row.live}
        why: dict[TableName, tuple[str, str]] = {}
        for merge, members in self._merges.members(foreign).items() if foreign else ():
            told = f"rows of it may have been changed through the MERGE table {'.'.join(merge)}, under its name."
            why |= dict.fromkeys(members, ("onSwap", told))
        why |= {name: ("onAlter", told) for name, told in self._catalog.differing(self._rows, facts, end).items()}
        policies = {"onSwap": self._settings.on_swap, "onAlter": self._settings.on_alter}
        for name, (policy, told) in why.items():
            row = self._rows.get(name)
            if row is None or not row.live:
                continue
            if policies[policy] == "stop":
                stopped = SchemaError(
                    f"{told} {policy}=stop asks to stop there.", hint=RESYNC.format(table=".".join(name))
                )
                self._rows[name] = suspended(spark, row, stopped)
            else:
                self._rows[name] = waiting(row, number, told, state=READING)

    def _refuse_unreadable(self, spark: SparkSession, waited: Collection[str | None]) -> None:
        """Suspend tables that wait since this batch, and cannot be read: reading them would end the query."""
        assert self._rows is not None  # noqa: S101
        names = [row.name for row in self._waiting_since(waited)]
        for name, why in (unreadable(self._settings.options, names) if names else {}).items():
            self._rows[name] = suspended(spark, self._rows[name], PrerequisiteError(why))

    def _works(self, batch: DataFrame, number: int, facts: BatchFacts, begun: Collection[TableName]) -> list[TableWork]:
        """Return the work on all tables of a batch; `begun`: those whose rows are read again from this batch on."""
        assert self._rows is not None  # noqa: S101
        works = []
        for name, row in list(self._rows.items()):
            statements = statements_of(facts, name)
            if name in begun:
                statements = []  # the rows that are read are those behind them
            comes_back = row.state == DROPPED or row.waits_for is not None
            if row.live and row.rules != kept_rule(self._settings.rule_of(name), self._settings.hash_key):
                changed = ConfigError("its rule has changed.", hint=RESYNC.format(table=".".join(name)))
                self._rows[name] = suspended(batch.sparkSession, row, changed)
            elif (row.live and name in facts.tables) or (statements and (row.live or comes_back)):
                changes = facts.tables.get(name, TableChanges())
                part = TablePart(self._settings, batch, number, row, changes, self._first)
                works.append(TableWork(part, statements))
        return works

    def _run(self, works: list[TableWork]) -> dict[TableName, ControlRow]:
        """Do the work of all tables, and return their rows."""
        done = {work.row.name: (work, result) for work, result in self._work.done(works)}
        failed = {name: result for name, (_, result) in done.items() if not isinstance(result, ControlRow)}
        fault = fault_of_all(failed.values(), written=len(done) - len(failed))
        if fault is not None:
            first = next(work for work, result in done.values() if result is fault)
            raise full_disk(fault, first.row.target) or fault
        return {
            name: result if isinstance(result, ControlRow) else suspended_by_work(self._settings, work, result)
            for name, (work, result) in done.items()
        }

    def _read_again(self, spark: SparkSession, number: int, end: SourceOffset) -> set[TableName]:
        """Make the targets new of tables whose rows are read again from this batch on, and return their names."""
        assert self._rows is not None  # noqa: S101
        names = set() if end.asked is None else set(end.asked.tables)
        word = self._begun_word(spark, number, end)
        if word is not None:
            pattern = matcher(word.patterns)
            names |= {name for name in self._rows if pattern.fullmatch(".".join(name))}
        names &= self._rows.keys()
        if not names:
            return names
        found = read_source_tables(self._settings.options)
        unseen = set(hidden(self._settings.options, sorted(names - found.tables.keys())))
        for name in sorted(names):
            old = self._rows[name]
            if name in unseen:
                self._rows[name] = suspended(spark, old, _hidden_error(name))
            elif name not in found.tables:
                self._rows[name] = old._replace(state=DROPPED, waits_for=None, error=None)
            else:
                self._rows[name] = self._begun_again(spark, old, found, number, end, word)
        return names

    def _begun_again(
        self,
        spark: SparkSession,
        old: ControlRow,
        found: SourceTables,
        number: int,
        end: SourceOffset,
        word: ReadAgain | None,
    ) -> ControlRow:
        """Begin the target of a table again, in the place of the one that it has, or had under another name."""
        last = max([old, *(row for row in self._sharing(old.name) if not _holds(row))], key=lambda row: row.batch)
        targets = Targets(self._settings, spark, old.mirror, NewReading(last, number, end.position))
        again = old.again if word is None else word.word
        row = self._begun(targets, spark, old.name, found, number, again=again)
        row = row._replace(tries=old.tries + 1)
        return kept(row, old, number) if row.state == READING and row.waits_for is None else row

    def _begun_word(self, spark: SparkSession, number: int, end: SourceOffset) -> ReadAgain | None:
        """Return the option by which tables are read again from this batch on; None where none does.

        Raises:
            ConfigError: the batch is of an earlier start, with a word that this one does not have.
        """
        before = self._end
        if before is None and number:
            before = end_of(spark, self._settings.checkpoint, number - 1)
        asked = self._settings.options.snapshot_again
        if end.again is None or (before is not None and before.again == end.again):
            return None
        if asked is not None and asked.word == end.again:
            return asked
        if before is None:
            return None  # all tables are read from the first batch on
        raise ConfigError(
            f"the batch that comes again reads tables for snapshotAgain=…@{end.again}, and this start of the "
            "mirror does not say which.",
            hint="Start it once more with that option as it was then, until the batch is done.",
        )

    def _meet_new(self, spark: SparkSession, number: int, facts: BatchFacts) -> None:
        """Make targets for tables of the batch that the mirror does not know: they were made since."""
        assert self._rows is not None  # noqa: S101
        new = sorted(facts.tables.keys() - self._rows.keys())
        if not new:
            return
        found = read_source_tables(self._settings.options)
        mirror = str(spark.sparkContext.getLocalProperty(QUERY_ID))
        targets = Targets(self._settings, spark, mirror)
        for name in new:
            if name in found.tables:
                self._rows[name] = self._begun(targets, spark, name, found, number)
            elif (fault := facts.tables[name].fault) is not None:
                _log.error("%s is not mirrored: %s", ".".join(name), fault)
        widen_views(self._settings.options, facts, [name for name in new if name not in found.tables])

    def _begun(
        self,
        targets: Targets,
        spark: SparkSession,
        name: TableName,
        found: SourceTables,
        number: int,
        *,
        again: str | None = None,
    ) -> ControlRow:
        """Begin a target; a table that cannot have one is suspended, or waits if that passes: a table that had the
        target may be renamed in this batch.
        """
        table, position = found.tables[name], str(found.position)
        row = targets.row(name, table, position, again=again)
        holder = next((one for one in self._sharing(name) if _holds(one)), None)
        if holder is not None and holder.name in found.tables:
            return suspended(spark, row, self._settings.names.meeting(holder.name, name))
        if holder is not None:
            return waiting(row, number, f"it takes the target of {'.'.join(holder.name)}.", state=READING)
        if table.unsettled:
            return waiting(row, number, _UNSETTLED, state=READING)
        try:
            return targets.begin(name, table, position, again=again)
        except (ReplicaError, *SPARK_ERRORS) as error:
            raise_fault(error, written=0)
            return suspended(spark, row, error)

    def _sharing(self, name: TableName) -> list[ControlRow]:
        """Return the rows of other tables with the target of a name: names that differ by case alone share one."""
        assert self._rows is not None  # noqa: S101
        key = self._settings.names.key(name)
        return [row for row in self._rows.values() if row.name != name and self._settings.names.key(row.name) == key]


def _holds(row: ControlRow) -> bool:
    """Tell whether a table has its target: one that waits for its first reading does not, and one that is dropped
    leaves it.
    """
    return row.state != DROPPED and (row.live or row.batch != NO_BATCH)


def _hidden_error(name: TableName) -> ConfigError:
    return ConfigError(_HIDDEN, hint=RESYNC.format(table=".".join(name)))


def _is_read(name: TableName, end: SourceOffset) -> bool:
    """Tell whether rows of a table are still to be read behind a batch that ends there."""
    return end.snapshot is not None and end.snapshot.reached(name) is not None


def _is_whole(row: ControlRow, end: SourceOffset) -> bool:
    """Tell whether a target is what the server had at the end of a batch: nothing is to be read, or followed."""
    return not _is_read(row.name, end) and row.missed is None and row.put_off is None
