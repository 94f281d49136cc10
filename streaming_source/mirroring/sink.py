"""The foreachBatch function of a mirror: apply one micro-batch to all targets, then write the control table.

`MirrorSink._apply` has the steps in order. After a micro-batch, each target is equal to its table at the end of the
micro-batch. An error of one table suspends only that table, with the reason. An error that concerns all tables, or the
machine, ends the query; Spark then repeats the micro-batch.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

from replica.errors import ConfigError, PrerequisiteError, SchemaError
from replica.schema.patterns import table_text
from streaming_source.driver.own_session import pin
from streaming_source.mirroring.apply.faults import fault_of_all, full_disk, typed_storage_errors
from streaming_source.mirroring.apply.missing_targets import MissingTargetCheck, missing_target_error
from streaming_source.mirroring.apply.parallel_applier import ParallelApplier, TargetSize
from streaming_source.mirroring.apply.repairs import Repairs
from streaming_source.mirroring.apply.suspension import restore, suspended, suspended_by_work
from streaming_source.mirroring.apply.table_applier import TableApplier, TableBatch, kept_in
from streaming_source.mirroring.batch.batch_facts import TableChanges, collect_facts
from streaming_source.mirroring.control.continuation import FencingCheck, check_fencing, end_of, is_applied
from streaming_source.mirroring.control.control_table import (
    DROPPED,
    FAILED,
    NO_BATCH,
    READING,
    ControlRow,
    is_as_written,
    mirrored_tables,
    write_control,
)
from streaming_source.mirroring.control.metrics import MirrorLag, metrics_of
from streaming_source.mirroring.control.states import doubted, settled
from streaming_source.mirroring.foreign_keys.cascades import Cascades
from streaming_source.mirroring.reading.beginnings import Beginnings, hidden_error
from streaming_source.mirroring.reading.resnapshot import RESNAPSHOT_HINT, request_resnapshot, wait_s
from streaming_source.mirroring.reading.source_tables import hidden, unreadable
from streaming_source.mirroring.statements.alterations import statements_of
from streaming_source.mirroring.statements.catalog_check import CatalogCheck
from streaming_source.mirroring.statements.merge_tables import MergeTables
from streaming_source.mirroring.writers.native.upkeep import Upkeep
from streaming_source.mirroring.writers.native.writer import NativeWriter
from streaming_source.mirroring.writers.target_format import METADATA, UNNUMBERED, Commit
from streaming_source.sinks.queries import forget_ended, short_java_errors
from streaming_source.sinks.storage_faults import bucket_fault
from streaming_source.transforms.table_rules import kept_rule

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.offsets.offset import SourceOffset

_log = logging.getLogger(__name__)
QUERY_ID = "sql.streaming.queryId"


class MirrorSink:
    """Function for foreachBatch, with the state of a running mirror.

    Each start of a mirror makes one. Only the thread of the mirror's query calls it.
    """

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._rows: dict[TableName, ControlRow] | None = None
        self._failed: set[TableName] = set()
        self._first = True
        self._end: SourceOffset | None = None
        self._repairs = Repairs(settings)
        self._fencing = FencingCheck()
        self._presence = MissingTargetCheck(settings.parallel)
        self._work = ParallelApplier(settings.parallel)
        self._cascades = Cascades(settings)
        self._lag = MirrorLag()
        self._catalog = CatalogCheck(settings.options)
        self._merges = MergeTables(settings.options)
        self._native = NativeWriter(settings)
        self._upkeep = Upkeep()

    def __repr__(self) -> str:
        return f"MirrorSink({self._settings!r})"

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply one micro-batch to the targets."""
        with typed_storage_errors("a micro-batch"), short_java_errors():
            spark = batch.sparkSession
            if self._rows is None:
                pin(spark)  # this session is the query's own copy of the user's session
            mirror = str(spark.sparkContext.getLocalProperty(QUERY_ID))
            if self._rows is None:
                self._rows = self._control_rows(spark, mirror)
                self._failed = {name for name, row in self._rows.items() if row.state == FAILED}
            elif self._fencing.due() and not is_as_written(self._control_folder(spark), self._rows.values()):
                check_fencing(
                    self._rows.values(), self._control_rows(spark, mirror).values(), self._settings.names.control
                )
            end = end_of(spark, self._settings.checkpoint, number)
            if is_applied(self._rows.values(), number, end, self._settings.checkpoint):
                return  # the targets have the micro-batch, although Spark's commit log lacks it
            commit = Commit(mirror, number, str(end.position))
            spark.conf.set(METADATA, commit.of(UNNUMBERED).metadata)
            beginnings = Beginnings(self._settings, spark, commit, self._rows)
            if not self._rows:
                beginnings.begin_all()
            self._apply(batch, commit, end, beginnings)
            self._first, self._end = False, end
            self._work.fit(spark, TargetSize(max((row.rows for row in self._rows.values()), default=0), 0))
            self._serve_repairs(spark, end)
            forget_ended(spark)

    def _control_rows(self, spark: SparkSession, mirror: str) -> dict[TableName, ControlRow]:
        rows = {row.name: row for row in mirrored_tables(spark, self._settings.names.control)}
        foreign = next((row for row in rows.values() if row.mirror != mirror), None)
        if foreign is not None:
            raise ConfigError(
                f"{self._settings.names.control} is the control table of another mirror, {foreign.mirror}.",
                hint="Start that mirror with its own checkpoint, or give another control table and other targets.",
            )
        return rows

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _apply(self, batch: DataFrame, commit: Commit, end: SourceOffset, beginnings: Beginnings) -> None:
        assert self._rows is not None  # noqa: S101
        number = commit.batch
        self._restore_suspended(batch.sparkSession)
        batch.persist(kept_in(batch.sparkSession, self._settings))  # otherwise each action scans the binlog
        try:
            facts = collect_facts(batch)
            waited = {row.waits_for for row in self._rows.values()}
            begun = beginnings.begin_resnapshots(end, self._start_of(batch.sparkSession, number))
            self._refuse(end)
            beginnings.begin_new(facts)
            self._doubt_lost(facts, number)
            self._suspend_missing(batch.sparkSession, facts)
            works = self._works(batch, commit, facts, begun, beginnings.kept)
            self._work.follow(works)
            self._native.write(batch.sparkSession, works, facts)
            rows = {**self._rows, **self._run(works)}
            rows = self._cascaded(batch, number, facts, rows, begun, end)
        finally:
            batch.unpersist()
        now = dt.datetime.now(dt.UTC)
        lag = self._lag.at(now, self._commit_times(facts), end)
        for name in self._hidden(rows, end):
            rows[name] = suspended(rows[name], hidden_error(name))
        for name, row in rows.items():
            if row.live:
                complete = _is_complete(row, end)
                row = row._replace(before_snapshot=None) if complete else row  # noqa: PLW2901
                row = settled(row, complete=complete)._replace(  # noqa: PLW2901
                    position=str(end.position),
                    batch=number,
                    tries=0 if complete else row.tries,
                    lag=lag,
                )
            else:
                row = row._replace(lag=None)  # noqa: PLW2901
            self._rows[name] = row._replace(updated_at=now)
        self._doubt(number, facts, end)
        self._refuse_unreadable(waited)
        self._work.fit(batch.sparkSession, TargetSize(len(self._rows), len(self._rows)))
        self._write_control(batch.sparkSession)
        self._restore_suspended(batch.sparkSession)
        metrics_of(batch.sparkSession, self._settings.names.control).of_tables(self._rows.values())
        for row in self._waiting_since(waited):
            request_resnapshot(self._settings.checkpoint, [row.name], str(row.waits_for), wait_s=wait_s(row))
        self._keep_up(batch.sparkSession, works)

    def _start_of(self, spark: SparkSession, number: int) -> SourceOffset | None:
        """Return the beginning of a micro-batch; None for the first one."""
        if self._end is not None or not number:
            return self._end
        return end_of(spark, self._settings.checkpoint, number - 1)

    def _commit_times(self, facts: BatchFacts) -> list[tuple[dt.datetime | None, dt.datetime | None]]:
        assert self._rows is not None  # noqa: S101
        created = {name: row.created_at for name, row in self._rows.items()}
        return [(table.committed_at, created.get(name)) for name, table in facts.tables.items()]

    def _cascaded(
        self,
        batch: DataFrame,
        number: int,
        facts: BatchFacts,
        rows: dict[TableName, ControlRow],
        begun: Collection[TableName],
        end: SourceOffset,
    ) -> dict[TableName, ControlRow]:
        rows, stopped = self._cascades.follow(batch, number, facts, rows, begun, end, lambda name: _is_read(name, end))
        return rows | {name: suspended(rows[name], error) for name, error in stopped.items()}

    def _serve_repairs(self, spark: SparkSession, end: SourceOffset) -> None:
        """Do the repairs that audits request, and apply cascades after them.

        Foreign keys may have deleted a restored row, or rows below it, since the audit's position.
        """
        assert self._rows is not None  # noqa: S101
        rows = self._rows
        followed: set[TableName] = set()

        def before(name: TableName, position: str) -> None:
            later = self._cascades.defer_since(name, position, rows)
            if later:
                rows.update({one: settled(row, complete=False) for one, row in later.items()})
                followed.update(later)
                self._write_control(spark)  # a crash after the repair must not lose the deferral

        self._repairs.serve(spark, rows, before)
        if not followed:
            return
        stopped = self._cascades.catch_up(spark, self._rows, end, lambda name: _is_read(name, end))
        self._rows |= {name: suspended(self._rows[name], error) for name, error in stopped.items()}
        for name, row in self._rows.items():
            if row.live and _is_complete(row, end):
                self._rows[name] = settled(row, complete=True)
        self._write_control(spark)

    def _write_control(self, spark: SparkSession) -> None:
        assert self._rows is not None  # noqa: S101
        failed = {name for name, row in self._rows.items() if row.state == FAILED}
        if self._settings.on_table_error == "fail" and failed - self._failed:
            name = min(failed - self._failed)
            raise SchemaError(
                f"{table_text(name)} cannot continue, and onTableError=fail ends the query: {self._rows[name].error}"
            )
        self._failed = failed
        control, folder = self._settings.names.control, self._control_folder(spark)
        write_control(spark, control, self._rows.values(), folder=folder)

    def _restore_suspended(self, spark: SparkSession) -> None:
        """Reset the targets of suspended tables to their rows before the re-snapshot.

        The control table has the state of these tables before this call, so a crash in between repeats only the reset.
        """
        assert self._rows is not None  # noqa: S101
        broken = [row for row in self._rows.values() if row.state == FAILED and row.before_snapshot is not None]
        self._rows |= {row.name: restore(spark, row) for row in broken}
        if broken:
            self._write_control(spark)

    def _control_folder(self, spark: SparkSession) -> str | None:
        return self._native.folder(spark, self._settings.names.control)

    def _keep_up(self, spark: SparkSession, works: list[TableApplier]) -> None:
        """Do due upkeep of the tables that this micro-batch wrote without Spark."""
        written = [(work.row.target, work.row.defined_at) for work in works if work.changes_are_in or work.reads_are_in]
        folders = [self._native.folder(spark, *table) for table in (*written, (self._settings.names.control, None))]
        self._upkeep.after_batch(folder for folder in folders if folder is not None)

    def _refuse(self, end: SourceOffset) -> None:
        """Suspend tables that cannot be read, so that the stream delivers no more rows of them."""
        assert self._rows is not None  # noqa: S101
        for name, why in end.refused:
            if name in self._rows and self._rows[name].live:
                self._rows[name] = suspended(self._rows[name], PrerequisiteError(why))

    def _doubt_lost(self, facts: BatchFacts, number: int) -> None:
        """Re-snapshot tables whose snapshot rows were lost before this micro-batch was applied."""
        assert self._rows is not None  # noqa: S101
        for name, why in facts.lost.items():
            row = self._rows.get(name)
            if row is not None and row.live:
                why = f"the files with its snapshot rows were lost, and the same rows cannot be read again: {why}."  # noqa: PLW2901
                _log.warning("%s: %s The table is re-snapshotted.", table_text(name), why)
                self._rows[name] = doubted(row, number, why)

    def _suspend_missing(self, spark: SparkSession, facts: BatchFacts) -> None:
        """Suspend tables whose targets were dropped outside the mirror.

        Tables with statements are not checked: an earlier attempt of the micro-batch may have dropped their targets.
        """
        assert self._rows is not None  # noqa: S101
        if not self._presence.due():
            return
        live = [row for row in self._rows.values() if row.live and row.batch != NO_BATCH]
        for row in self._presence.missing(spark, [row for row in live if not statements_of(facts, row.name)]):
            self._rows[row.name] = suspended(
                row, missing_target_error(row, RESNAPSHOT_HINT.format(table=table_text(row.name)))
            )

    def _hidden(self, rows: dict[TableName, ControlRow], end: SourceOffset) -> list[TableName]:
        """Return the tables whose snapshot ends with this micro-batch and that the account may not read.

        The server hides such a table from the account, so rows may be missing from the snapshot.
        """
        begun = [name for name, row in rows.items() if row.live and row.state == READING]
        over = [name for name in begun if not _is_read(name, end)]
        return hidden(self._settings.options, over) if over else []

    def _waiting_since(self, waited: Collection[str | None]) -> list[ControlRow]:
        """Return the rows of tables that wait for a re-snapshot by a request that is not in `waited`."""
        assert self._rows is not None  # noqa: S101
        return [row for row in self._rows.values() if row.waits_for is not None and row.waits_for not in waited]

    def _doubt(self, number: int, facts: BatchFacts, end: SourceOffset) -> None:
        """Request re-snapshots of tables that may have changes which the micro-batch does not contain."""
        assert self._rows is not None  # noqa: S101
        ours = {row.name for row in self._rows.values() if row.live or row.batch != NO_BATCH}
        foreign = facts.touched.keys() - ours
        why: dict[TableName, tuple[str, str]] = {}
        for merge, members in self._merges.members(foreign, facts.statements).items() if foreign else ():
            reason = f"its rows may have been changed through the MERGE table {table_text(merge)}."
            why |= dict.fromkeys(members, ("onSwap", reason))
        why |= {name: ("onAlter", reason) for name, reason in self._catalog.differing(self._rows, facts, end).items()}
        policies = {"onSwap": self._settings.on_swap, "onAlter": self._settings.on_alter}
        for name, (policy, reason) in why.items():
            row = self._rows.get(name)
            if row is None or not row.live:
                continue
            if policies[policy] == "stop":
                stopped = SchemaError(
                    f"{reason} {policy}=stop suspends the table.", hint=RESNAPSHOT_HINT.format(table=table_text(name))
                )
                self._rows[name] = suspended(row, stopped)
            else:
                self._rows[name] = doubted(row, number, reason)

    def _refuse_unreadable(self, waited: Collection[str | None]) -> None:
        """Suspend unreadable tables that began to wait in this micro-batch: their re-snapshot would end the query."""
        assert self._rows is not None  # noqa: S101
        names = [row.name for row in self._waiting_since(waited)]
        for name, why in (unreadable(self._settings.options, names) if names else {}).items():
            self._rows[name] = suspended(self._rows[name], why)

    def _works(
        self,
        batch: DataFrame,
        commit: Commit,
        facts: BatchFacts,
        begun: Collection[TableName],
        kept: Collection[TableName],
    ) -> list[TableApplier]:
        """Return one `TableApplier` for each table with work in the micro-batch.

        Args:
            batch: the manifests.
            commit: the token of the micro-batch.
            facts: the facts of the micro-batch.
            begun: the tables whose re-snapshot begins with the micro-batch.
            kept: the tables of `begun` whose targets keep the older rows.
        """
        assert self._rows is not None  # noqa: S101
        works = []
        for name, row in list(self._rows.items()):
            statements = statements_of(facts, name)
            if name in begun:
                statements = []  # the snapshot is newer than the statements
            may_return = row.state == DROPPED or row.waits_for is not None
            if row.live and row.rules != kept_rule(self._settings.rule_of(name), self._settings.hash_key):
                changed = ConfigError("its rule has changed.", hint=RESNAPSHOT_HINT.format(table=table_text(name)))
                self._rows[name] = suspended(row, changed)
            elif (row.live and name in facts.tables) or (statements and (row.live or may_return)):
                changes = facts.tables.get(name, TableChanges())
                # A target that is created again may have another folder.
                folder = self._native.folder(batch.sparkSession, row.target, row.defined_at)
                stay = name in kept
                part = TableBatch(self._settings, batch, commit, row, changes, self._first, stay, folder=folder)
                works.append(TableApplier(part, statements))
        return works

    def _run(self, works: list[TableApplier]) -> dict[TableName, ControlRow]:
        done = {work.row.name: (work, result) for work, result in self._work.done(works)}
        failed = {name: result for name, (_, result) in done.items() if not isinstance(result, ControlRow)}
        fault = fault_of_all(failed.values(), written=len(done) - len(failed))
        if fault is not None:
            first = next(work for work, result in done.values() if result is fault)
            raise full_disk(fault, first.row.target) or bucket_fault(fault, first.row.target) or fault
        return {
            name: result if isinstance(result, ControlRow) else suspended_by_work(self._settings, work, result)
            for name, (work, result) in done.items()
        }


def _is_read(name: TableName, end: SourceOffset) -> bool:
    """Return True if the snapshot of a table is still running after a micro-batch that ends at `end`."""
    return end.snapshot is not None and end.snapshot.reached(name) is not None


def _is_complete(row: ControlRow, end: SourceOffset) -> bool:
    """Return True if a target is complete at the end of a micro-batch: no snapshot rows and no cascades are missing."""
    return not _is_read(row.name, end) and row.missed_cascade is None and row.deferred_cascade is None
