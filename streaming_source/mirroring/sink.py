"""The function for foreachBatch: a micro-batch into all its targets, and then the control table.

In: batches of one query over the selected tables, in order. Out: targets that are, table by table, what the server had
at the batch's end. A table that cannot go on is set aside with its reason, and the others go on. What is wrong with all
of them, or with the machine, ends the query; the batch then comes again.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import ConfigError, PrerequisiteError, ReplicaError, SchemaError
from replica.schema.patterns import matcher
from streaming_source.mirroring.batch_end import end_of
from streaming_source.mirroring.batch_facts import TableChanges, look_through
from streaming_source.mirroring.cascading.cascades import Cascades
from streaming_source.mirroring.continuation import Alone, check_alone, is_there
from streaming_source.mirroring.control import make_control, mirrored_tables, write_control
from streaming_source.mirroring.control_row import CURRENT, DROPPED, FAILED, NO_BATCH, READING, ControlRow
from streaming_source.mirroring.error_names import error_name, refused_row
from streaming_source.mirroring.faults import SPARK_ERRORS, fault_of_all, may_pass, raise_fault, told_by
from streaming_source.mirroring.full_disk import full_disk, full_disk_told
from streaming_source.mirroring.gone_targets import Presence, gone_error, is_target_there
from streaming_source.mirroring.kept_target import NewReading
from streaming_source.mirroring.lag import lag_at
from streaming_source.mirroring.merge_settings import TargetSize
from streaming_source.mirroring.metrics import metrics_of
from streaming_source.mirroring.repairs import Repairs
from streaming_source.mirroring.reread import MOST_TRIES, RESYNC, ask_again, wait_s, waiting
from streaming_source.mirroring.sized_work import SizedWork
from streaming_source.mirroring.source_tables import hidden, read_source_tables, unreadable
from streaming_source.mirroring.statement_scope import statements_of, widen_views
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
_LONGEST_ERROR = 1000
_HIDDEN = (
    "the account has no SELECT on it, or not any more, so that its rows may not have been read. GRANT SELECT on it to "
    "the account."
)

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
            self._rows[name] = _aside(targets.row(name, found.tables[name], str(found.position)), why)

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _apply(self, batch: DataFrame, number: int, end: SourceOffset) -> None:
        assert self._rows is not None  # noqa: S101
        batch.persist(kept_in(batch.sparkSession, self._settings))  # every action on it walks over the binlog again
        try:
            facts = look_through(batch)
            begun = self._read_again(batch.sparkSession, number, end)
            self._refuse(end)
            self._meet_new(batch.sparkSession, facts)
            self._miss_gone(batch.sparkSession, facts)
            works = self._works(batch, number, facts, begun)
            rows = {**self._rows, **self._run(works)}
            rows = self._cascaded(batch, number, facts, rows, begun, end)
        finally:
            batch.unpersist()
        now = dt.datetime.now(dt.UTC)
        behind = lag_at(now, [table.committed_at for table in facts.tables.values()], end)
        waited = {row.waits_for for row in self._rows.values()}
        for name in self._hidden(rows, end):
            rows[name] = _aside(rows[name], ConfigError(_HIDDEN, hint=RESYNC.format(table=".".join(name))))
        for name, row in rows.items():
            if row.live:
                whole = _is_whole(row, end)
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
        self._refuse_unreadable(waited)
        self._work.fit(batch.sparkSession, TargetSize(len(self._rows), len(self._rows)))
        write_control(batch.sparkSession, self._settings.names.control, self._rows.values())
        metrics_of(batch.sparkSession, self._settings.names.control).of_tables(self._rows.values())
        for row in self._waiting_since(waited):
            ask_again(self._settings.checkpoint, [row.name], str(row.waits_for), wait_s=wait_s(row))

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
        return rows | {name: _aside(rows[name], error) for name, error in stopped.items()}

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
        self._rows |= {name: _aside(self._rows[name], error) for name, error in stopped.items()}
        for name, row in self._rows.items():
            if row.live and _is_whole(row, end):
                self._rows[name] = row._replace(state=CURRENT)
        write_control(spark, self._settings.names.control, self._rows.values())

    def _refuse(self, end: SourceOffset) -> None:
        """Set tables aside of which the stream brings no more rows: they cannot be read."""
        assert self._rows is not None  # noqa: S101
        for name, why in end.refused:
            if name in self._rows and self._rows[name].live:
                self._rows[name] = _aside(self._rows[name], PrerequisiteError(why))

    def _miss_gone(self, spark: SparkSession, facts: BatchFacts) -> None:
        """Set tables aside whose targets something else removed; an earlier try of a batch with statements may have."""
        assert self._rows is not None  # noqa: S101
        if not self._presence.due():
            return
        live = [row for row in self._rows.values() if row.live and row.batch != NO_BATCH]
        for row in self._presence.gone(spark, [row for row in live if not statements_of(facts, row.name)]):
            self._rows[row.name] = _aside(row, gone_error(row, RESYNC.format(table=".".join(row.name))))

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

    def _refuse_unreadable(self, waited: Collection[str | None]) -> None:
        """Set tables aside that wait since this batch, and cannot be read: reading them would end the query."""
        assert self._rows is not None  # noqa: S101
        names = [row.name for row in self._waiting_since(waited)]
        for name, why in (unreadable(self._settings.options, names) if names else {}).items():
            self._rows[name] = self._rows[name]._replace(state=FAILED, waits_for=None, error=why[:_LONGEST_ERROR])

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
                self._rows[name] = _aside(
                    row, ConfigError("its rule has changed.", hint=RESYNC.format(table=".".join(name)))
                )
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
            name: result if isinstance(result, ControlRow) else self._put_aside(work, result)
            for name, (work, result) in done.items()
        }

    def _put_aside(self, work: TableWork, error: Exception) -> ControlRow:
        """Set a table aside, with the name of the error alone where its text may have values that rules hide."""
        hides = self._settings.rule_of(work.row.name).hides
        hint = RESYNC.format(table=".".join(work.row.name))
        if isinstance(error, AnalysisException) and not is_target_there(work.part.spark, work.row):
            return _aside(work.row, gone_error(work.row, hint))
        refused = refused_row(error, hides=hides) if isinstance(error, Py4JJavaError) else None
        if refused is not None:
            return _aside(work.row, SchemaError(refused, hint=hint))
        if hides and isinstance(error, SPARK_ERRORS):
            named = error_name(error) if isinstance(error, PySparkException) else "Delta refuses a row or a batch."
            return _aside(work.row, error, work.part.number, why=str(SchemaError(named, hint=hint)))
        full = full_disk(error, work.row.target)
        why = None if full is None else str(full)
        if isinstance(error, SPARK_ERRORS) and not may_pass(error):
            told = told_by(error).partition(";\n")[0]  # what follows is Spark's plan
            why = f"{told[: _LONGEST_ERROR - len(hint) - 1]} {hint}"
        return _aside(work.row, error, work.part.number, why=why)

    def _read_again(self, spark: SparkSession, number: int, end: SourceOffset) -> set[TableName]:
        """Make the targets new of tables whose rows are read again from this batch on, and return their names."""
        assert self._rows is not None  # noqa: S101
        names = set() if end.asked is None else set(end.asked.tables)
        word = self._begun_word(spark, number, end)
        if word is not None:
            pattern = matcher(word.patterns)
            names |= {name for name in self._rows if pattern.fullmatch(".".join(name))}
        names &= self._rows.keys()
        found = read_source_tables(self._settings.options) if names else None
        for name in sorted(names):
            old = self._rows[name]
            if found is None or name not in found.tables:
                self._rows[name] = old._replace(state=DROPPED, waits_for=None, error=None)
                continue
            targets = Targets(self._settings, spark, old.mirror, NewReading(old, number, end.position))
            row = _begun(targets, name, found, again=old.again if word is None else word.word)
            self._rows[name] = row._replace(tries=old.tries + 1)
        return names

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

    def _meet_new(self, spark: SparkSession, facts: BatchFacts) -> None:
        """Make targets for tables of the batch that the mirror does not know: they were made since."""
        assert self._rows is not None  # noqa: S101
        new = sorted(facts.tables.keys() - self._rows.keys())
        if not new:
            return
        found = read_source_tables(self._settings.options)
        mirror = str(spark.sparkContext.getLocalProperty(QUERY_ID))
        targets = Targets(self._settings, spark, mirror)
        there = {row.target.casefold(): row.name for row in self._rows.values()}
        self._settings.names.check([name for name in new if name in found.tables], there)
        for name in new:
            if name in found.tables:
                self._rows[name] = _begun(targets, name, found)
        widen_views(self._settings.options, facts, [name for name in new if name not in found.tables])


def _is_read(name: TableName, end: SourceOffset) -> bool:
    """Tell whether rows of a table are still to be read behind a batch that ends there."""
    return end.snapshot is not None and end.snapshot.reached(name) is not None


def _is_whole(row: ControlRow, end: SourceOffset) -> bool:
    """Tell whether a target is what the server had at the end of a batch: nothing is to be read, or followed."""
    return not _is_read(row.name, end) and row.missed is None and row.put_off is None


def _begun(targets: Targets, name: TableName, found: SourceTables, *, again: str | None = None) -> ControlRow:
    """Begin a target; a table that cannot have one is set aside."""
    table, position = found.tables[name], str(found.position)
    try:
        return targets.begin(name, table, position, again=again)
    except (ReplicaError, *SPARK_ERRORS) as error:
        raise_fault(error, written=0)
        return _aside(targets.row(name, table, position, again=again), error)


def _aside(row: ControlRow, error: Exception, number: int | None = None, *, why: str | None = None) -> ControlRow:
    """Return the row of a table that does not go on, or not before it is read again because the fault may pass.

    `number`: the batch that the error is of; `why`: what is told of it instead of its own text.
    """
    why = (told_by(error) if why is None else why)[:_LONGEST_ERROR]
    _log.error("%s is set aside: %s", ".".join(row.name), why)
    if number is not None and may_pass(error) and row.tries < MOST_TRIES:
        return waiting(row, number, why, state=FAILED)
    return row._replace(state=FAILED, error=why)
