"""The function for foreachBatch: a micro-batch into all its targets, and then the control table.

In: batches of one query over the selected tables, in order. Out: targets that are, table by table, what the server had
at the batch's end. A table that cannot go on is set aside with its reason, and the others go on. What is wrong with all
of them, or with the machine, ends the query; the batch then comes again.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException

from replica.errors import ConfigError, ReplicaError, SchemaError
from replica.schema.patterns import matcher
from streaming_source.mirroring.batch_facts import TableChanges, look_through
from streaming_source.mirroring.control import (
    CURRENT,
    FAILED,
    READING,
    ControlRow,
    make_control,
    mirrored_tables,
    write_control,
)
from streaming_source.mirroring.error_names import error_name, refused_row
from streaming_source.mirroring.kept_rule import kept_rule
from streaming_source.mirroring.kept_target import NewReading
from streaming_source.mirroring.lag import lag_at
from streaming_source.mirroring.source_tables import read_source_tables
from streaming_source.mirroring.table_work import RESYNC, TableWork
from streaming_source.mirroring.targets import Targets
from streaming_source.mirroring.versions import METADATA, commit_metadata
from streaming_source.offsets.offset import SourceOffset
from streaming_source.queries.short_errors import short_java_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch_facts import BatchFacts
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.source_tables import SourceTables

QUERY_ID = "sql.streaming.queryId"
_BROKEN_OFF = ("cancel", "interrupt", "stopped sparkcontext", "sparkcontext was shut down")
"""What Spark says of a job that was ended because the query was: no fault of a table."""
_LONGEST_ERROR = 1000

_log = logging.getLogger(__name__)


class MirrorSink:
    """One per start of a mirror, called by the one thread of its query."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._rows: dict[TableName, ControlRow] | None = None
        self._first = True

    def __repr__(self) -> str:
        return f"MirrorSink({self._settings!r})"

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Bring one micro-batch into the targets."""
        with short_java_errors():
            spark = batch.sparkSession
            mirror = str(spark.sparkContext.getLocalProperty(QUERY_ID))
            if self._rows is None:
                self._rows = self._known(spark, mirror)
            if self._rows and max(row.batch for row in self._rows.values()) >= number:
                return  # everything of it is there, only Spark's own note of that is not
            end = end_of(spark, self._settings.checkpoint, number)
            spark.conf.set(METADATA, commit_metadata(mirror, number, str(end.position)))
            if not self._rows:
                self._begin(spark, mirror)
            self._apply(batch, number, end)
            self._first = False

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
        make_control(spark, self._settings.names.control, self._settings.names.control_namespace)
        found = read_source_tables(self._settings.options)
        self._settings.names.check(found.tables, {})
        targets = Targets(self._settings, spark, mirror)
        for name, table in sorted(found.tables.items()):
            self._rows[name] = targets.begin(name, table, str(found.position))

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _apply(self, batch: DataFrame, number: int, end: SourceOffset) -> None:
        assert self._rows is not None  # noqa: S101
        batch.persist(self._kept_in(batch.sparkSession))  # every action on a batch reads its range of the binlog again
        try:
            facts = look_through(batch)
            self._read_again(batch.sparkSession, number, end)
            self._meet_new(batch.sparkSession, facts)
            works = self._works(batch, number, facts)
            done = self._run(works)
        finally:
            batch.unpersist()
        now = dt.datetime.now(dt.UTC)
        behind = lag_at(now, [table.committed_at for table in facts.tables.values()], end)
        for name, row in {**self._rows, **done}.items():
            if row.live:
                whole = end.snapshot is None or end.snapshot.reached(name) is None
                row = row._replace(  # noqa: PLW2901
                    state=CURRENT if whole else READING, position=str(end.position), batch=number, lag=behind
                )
            else:
                row = row._replace(lag=None)  # noqa: PLW2901
            self._rows[name] = row._replace(updated_at=now)
        write_control(batch.sparkSession, self._settings.names.control, self._rows.values())

    def _kept_in(self, spark: SparkSession) -> StorageLevel:
        """Return where a batch is kept: not on disk where its rows have values that rules hide."""
        encrypted = spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") == "true"
        in_memory = self._settings.hides and not encrypted
        return StorageLevel.MEMORY_ONLY if in_memory else StorageLevel.MEMORY_AND_DISK_DESER

    def _works(self, batch: DataFrame, number: int, facts: BatchFacts) -> list[TableWork]:
        assert self._rows is not None  # noqa: S101
        works = []
        for name, row in list(self._rows.items()):
            statements = sorted(
                [*facts.statements.get(name, ()), *facts.databases.get(name[0], ())], key=lambda one: one[1:3]
            )
            if row.live and row.rules != kept_rule(self._settings.rule_of(name), self._settings.hash_key):
                self._rows[name] = _aside(
                    row, ConfigError("its rule has changed.", hint=RESYNC.format(table=".".join(name)))
                )
            elif row.live and (name in facts.tables or statements):
                changes = facts.tables.get(name, TableChanges())
                work = TableWork(self._settings, batch, number, row, changes, statements, self._first)
                works.append(work)
        return works

    def _run(self, works: list[TableWork]) -> dict[TableName, ControlRow]:
        """Do the work of several tables at a time; return their rows."""
        from pyspark import inheritable_thread_target

        if not works:
            return {}
        in_thread = inheritable_thread_target(works[0].batch.sparkSession)(_done)
        with ThreadPoolExecutor(self._settings.parallel, "mirror") as pool:
            futures = [(work, pool.submit(in_thread, work)) for work in works]
        return {work.row.name: future.result() for work, future in futures}

    def _read_again(self, spark: SparkSession, number: int, end: SourceOffset) -> None:
        """Make the targets of tables new whose rows are read again from this batch on."""
        assert self._rows is not None  # noqa: S101
        asked = self._settings.options.snapshot_again
        if asked is None or end.again != asked.word:
            return
        if number and end_of(spark, self._settings.checkpoint, number - 1).again == asked.word:
            return  # it began in an earlier batch
        pattern = matcher(asked.patterns)
        names = {name for name in self._rows if pattern.fullmatch(".".join(name))}
        found = read_source_tables(self._settings.options)
        for name in sorted(names & found.tables.keys()):
            old = self._rows[name]
            targets = Targets(self._settings, spark, old.mirror, NewReading(old, number, end.position))
            self._rows[name] = _begun(targets, name, found, again=asked.word)

    def _meet_new(self, spark: SparkSession, facts: BatchFacts) -> None:
        """Make targets for tables of the batch that the mirror does not know: they were made since."""
        assert self._rows is not None  # noqa: S101
        new = sorted({*facts.tables, *facts.statements} - self._rows.keys())
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


def end_of(spark: SparkSession, checkpoint: str, number: int) -> SourceOffset:
    """Return where a batch ends, as the checkpoint says: Spark writes it there before the batch runs."""
    written = spark.read.text(f"{checkpoint}/offsets/{number}", wholetext=True).first()
    return SourceOffset.parse(json.loads(str(written[0]).splitlines()[-1]))


def _begun(targets: Targets, name: TableName, found: SourceTables, *, again: str | None = None) -> ControlRow:
    """Begin a target; a table that cannot have one is set aside."""
    table, position = found.tables[name], str(found.position)
    try:
        return targets.begin(name, table, position, again=again)
    except (ReplicaError, PySparkException) as error:
        return _aside(targets.row(name, table, position, again=again), error)


def _done(work: TableWork) -> ControlRow:
    """Do the work; set the table aside where it is the table's fault."""
    hides = work.settings.rule_of(work.row.name).hides
    try:
        return work.done()
    except (ReplicaError, PySparkException) as error:
        if hides and isinstance(error, PySparkException) and not _is_broken_off(error):
            error = SchemaError(error_name(error), hint=RESYNC.format(table=".".join(work.row.name)))
        return _aside(work.row, error)
    except Py4JJavaError as error:
        why = refused_row(error, hides=hides)
        if why is None:
            raise
        return _aside(work.row, SchemaError(why, hint=RESYNC.format(table=".".join(work.row.name))))


def _is_broken_off(error: Exception) -> bool:
    return isinstance(error, PySparkException) and any(word in str(error).casefold() for word in _BROKEN_OFF)


def _aside(row: ControlRow, error: ReplicaError | PySparkException) -> ControlRow:
    """Return the row of a table that does not go on.

    Raises:
        PySparkException: it is the error of a job that was broken off, because the query was.
    """
    why = str(error)
    if _is_broken_off(error):
        raise error
    _log.error("%s is set aside: %s", ".".join(row.name), why)
    return row._replace(state=FAILED, error=why[:_LONGEST_ERROR])
