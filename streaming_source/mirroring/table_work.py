"""One table's part of a micro-batch, brought into its target.

In: the batch, the table's row of the control table, what the batch has of it. Out: the row behind the batch. Rows that
were read are appended, as none of them can be there; changes are one MERGE with the last change of each key. A
statement divides the rows: what comes before it goes in before it. The same batch again leaves the target as it is:
Delta knows an append by its number, a MERGE of the same changes changes nothing or is known by its commit, and where
there are statements the target goes back to what it was before the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from replica.errors import ConfigError, SchemaError
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.alterations import (
    ChangedUntold,
    Dropped,
    Emptied,
    Evolved,
    Made,
    NotInRows,
    asked_of,
    empties,
)
from streaming_source.mirroring.column_defaults import defaults_behind, same_defaults
from streaming_source.mirroring.control_row import DROPPED, NO_BATCH, READING
from streaming_source.mirroring.faults import SPARK_ERRORS, other_definition
from streaming_source.mirroring.formats.choose import open_target
from streaming_source.mirroring.formats.target_format import Appended
from streaming_source.mirroring.left_out import values_left_out
from streaming_source.mirroring.lost_key import lost_key
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import BatchPart
from streaming_source.mirroring.outlines.latest_rows import fits_one_task, latest_rows
from streaming_source.mirroring.outlines.table_rows import by_name_alone, rows_of_table, typed_columns, values_read
from streaming_source.mirroring.reread import waiting
from streaming_source.mirroring.rule_check import checked_rule, ruled_table
from streaming_source.mirroring.versions import has_batch
from streaming_source.ruling.ruled_images import target_images
from streaming_source.ruling.target_columns import WHOLE, identifier, target_keys
from streaming_source.schema.target_modes import CURRENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from streaming_source.mirroring.alterations import Asked
    from streaming_source.mirroring.batch_facts import StatementRow, TableChanges
    from streaming_source.mirroring.column_defaults import Defaults
    from streaming_source.mirroring.control_row import ControlRow
    from streaming_source.mirroring.formats.target_format import OpenTarget
    from streaming_source.mirroring.modes.mode import Mode
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.schema.row_schema import TableColumn

RESYNC = 'Have the table read again: mirror_resync(spark, tables=["{table}"], into=…).'
_SHOWN_CHARACTERS = 200


@dataclass(slots=True)
class TableWork:
    """The work on one table in one batch. `replayed`: the batch may have been tried before."""

    settings: MirrorSettings
    batch: DataFrame
    number: int
    row: ControlRow
    facts: TableChanges
    statements: list[StatementRow]
    replayed: bool = False
    _target: OpenTarget = field(init=False)
    _columns: tuple[TableColumn, ...] | None = field(init=False)
    _begun_before: bool = field(init=False, default=False)
    """Whether the batch has changes before its first statement: of a table that this one may replace."""

    def __post_init__(self) -> None:
        self._target = open_target(self._spark, self.row.target, self.number)
        # Between statements rows are of several definitions.
        self._columns = None if self.statements else typed_columns(self.row.table, self.settings.policy)

    def done(self) -> ControlRow:
        """Bring all of it into the target, and return the table's row behind it.

        Raises:
            SchemaError: the table cannot be kept equal behind a statement; it is set aside.
        """
        if not self.row.live:
            for statement in self.statements:
                self._follow(statement)
        elif self.statements:
            if self._domains > 1:
                self._wait(self.statements[0], "the batch has changes of it in several replication domains, unordered.")
            else:
                gone = self.replayed and not self._new and not self._went_back()
                self._in_order(gone=gone)
        else:
            self._of_one_definition()
        self._target.finish(self.facts.rows)
        return self.row._replace(
            rows=self.row.rows + self.facts.rows,
            committed_at=self.facts.committed_at or self.row.committed_at,
        )

    def count(self) -> int | None:
        """Return how many rows the target has before the batch; None where only reading them would tell."""
        return self._target.count()

    @property
    def _new(self) -> bool:
        """Whether the target was made for this batch, and is empty."""
        return self.row.batch == NO_BATCH

    @property
    def _mode(self) -> Mode:
        return mode_of(self.row.mode, self.row.keys)

    @property
    def _spark(self) -> SparkSession:
        return self.batch.sparkSession

    def _rows(self) -> DataFrame:
        return rows_of_table(self.batch, self.row.name, self._columns, self.facts, wide_sequence=self._wide)

    def _reads(self) -> DataFrame:
        """Return the rows that were read, with no more than is appended."""
        if self._columns is None or not self._mode.appends_values or not by_name_alone(self.row.name):
            return self._rows().where("op = 'read'")
        return values_read(self.batch, self.row.name, self._columns, self.facts, wide_sequence=self._wide)

    @property
    def _wide(self) -> bool:
        return self.settings.options.sequence_numbers == "decimal"

    def _append(self, rows: DataFrame) -> None:
        """Append rows of which none can be there; once, however often the batch comes."""
        once = None if self._new else Appended(self.row.mirror, self.number)
        self._target.append(self._mode.appended(self._part(rows)), once)

    def _merge(self, rows: DataFrame) -> None:
        self._mode.change(self._part(rows))

    def _of_one_definition(self) -> None:
        """Bring in rows as the table is defined, or, where some are of another definition, by the names of columns."""
        try:
            self._without_statements()
        except SPARK_ERRORS as error:
            if self._columns is None or not other_definition(error):
                raise
            self._columns = None
            self._without_statements()

    def _without_statements(self) -> None:
        if self._mode.append_only:
            self._append(self._rows())
        elif not self._mode.repeatable:
            self._once()
        elif self.facts.partial or (self._new and self.facts.changes):
            # A new target begins with the batch, in which the table may have changes from before it was read.
            self._merge(self._rows())
        else:
            if self.facts.changes and not self._merge_latest():
                self._merge(self._rows().where("op <> 'read'"))
            if self.facts.reads and self._mode.can_append(self._target):
                self._append(self._reads())
            elif self.facts.reads:
                self._merge(self._rows().where("op = 'read'"))

    def _merge_latest(self) -> bool:
        """Bring in the last change of each key, as one task finds it; tell whether that could be done."""
        columns, keys, rule = self._columns, self.row.keys, self.settings.rule_of(self.row.name)
        plain = rule.where is None and not rule.named and by_name_alone(self.row.name)
        if columns is None or not (plain and self._mode.takes_reduced and fits_one_task(self.facts, columns, keys)):
            return False
        latest = latest_rows(self.batch, self.row.name, columns, keys, self.facts)
        names = [column.name for column in ruled_table(self._spark, self.row.table, self.settings).columns]
        self._mode.change(BatchPart(latest, self._target, keys, names, partial=False, domains=False, reduced=True))
        return True

    def _once(self) -> None:
        """Bring in all of the batch by one commit, unless an earlier try did."""
        if self.replayed and not self._new and has_batch(self._spark, self.row, self.number):
            return
        if self.facts.changes:
            self._merge(self._rows())
        else:
            self._append(self._reads())

    def _part(self, rows: DataFrame) -> BatchPart:
        """Give change rows the columns of the target."""
        ruled = ruled_table(self._spark, self.row.table, self.settings)
        if self.facts.partial and not self._mode.append_only:
            ruled = ruled._replace(left_out=values_left_out(rows, self.row, ruled))
        return BatchPart(
            rows=target_images(rows, ruled),
            target=self._target,
            keys=target_keys(self.row.keys, ruled.columns),
            columns=[column.name for column in ruled.columns],
            partial=self.facts.partial,
            domains=self.facts.domains > 1,
        )

    # -- statements --------------------------------------------------------------------------------------------------

    @property
    def _domains(self) -> int:
        return max(self.facts.domains, len({statement.domain for statement in self.statements}))

    def _went_back(self) -> bool:
        """Undo what an earlier try of the batch left, a half of the statements it may be; tell whether the target is
        there: the earlier try may have followed a DROP.
        """
        if not self._target.exists():
            return False
        self._target.go_back(self.row, self.number)
        return True

    def _in_order(self, *, gone: bool) -> None:
        """Bring in the rows up to each statement, then what it does; `gone`: there is nothing to bring rows into.

        A MERGE costs a commit, also one without rows: a batch of many statements has few rows between two of them. Rows
        that a TRUNCATE behind them takes out at once are not brought in first.
        """
        rows = self._rows()
        if self.facts.changes:
            rows.persist(kept_in(self._spark, self.settings))  # they are asked for once more than there are parts
        try:
            self._parts_in_order(rows, gone=gone)
        finally:
            rows.unpersist()

    def _parts_in_order(self, rows: DataFrame, *, gone: bool) -> None:
        from pyspark.sql import functions as f

        place = f.struct(f.col("transaction.sequence_number"), f.col("transaction.ordinal"))
        change, before = f.col("op") != "read", f.lit(True)
        places = [_place_of(statement) for statement in self.statements]
        filled = self._filled(rows, place, places)
        self._begun_before = 0 in filled
        emptied = gone
        for number, (statement, here) in enumerate(zip(self.statements, places, strict=True)):
            clears = self.row.live and self._clears(statement)
            if number in filled and self.row.live and not gone and not clears:
                self._merge(rows.where(change & before & (place < here)))
                emptied = False
            before = place > here
            if not (clears and emptied):
                self._follow(statement)
            emptied = emptied or clears
        if self.row.live and not gone and (len(places) in filled or self.facts.reads):
            self._merge(rows.where(~change | before))

    def _filled(self, rows: DataFrame, place: Column, places: Sequence[Column]) -> set[int]:
        """Return which parts of the batch have changes: 0 is the one before the first of `places`, 1 the next."""
        from pyspark.sql import functions as f

        if not self.facts.changes:
            return set()
        part = f.size(f.filter(f.array(*places), lambda one: one < place))
        return {row[0] for row in rows.where("op <> 'read'").select(part).distinct().collect()}

    def _clears(self, statement: StatementRow) -> bool:
        """Tell whether a statement takes out all rows of the target, and leaves no trace of them."""
        applied = self.row.mode == CURRENT and self.settings.on_truncate == "apply"
        return applied and empties(statement.sql, self.row.source_database)

    def _follow(self, statement: StatementRow) -> None:
        # What stands in the definition already, or is read again behind the statement, asks nothing of the rule.
        known = not self.row.live or self._known(statement)
        rule = WHOLE if known else self.settings.rule_of(self.row.name)
        try:
            asked = asked_of(statement.sql, self.row.table, self.settings.policy, rule)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        if not self.row.live:
            self._come_back(statement, asked)
        elif isinstance(asked, Emptied):
            self._empty(statement)
        elif known:
            self._check_early(statement, asked)
        elif isinstance(asked, Dropped):
            self._drop(statement)
        elif isinstance(asked, Evolved):
            self._evolve(statement, asked)
        elif isinstance(asked, NotInRows):
            self._read_again(statement, asked)
        elif asked.always:
            self._read_again(statement, NotInRows("another table is made in its place.", "onSwap"))

    def _come_back(self, statement: StatementRow, asked: Asked) -> None:
        """Do what a statement asks of a table that is dropped, or waits to be read again."""
        if isinstance(asked, Dropped):
            self._drop(statement)
        elif self.row.state != DROPPED:
            return  # it is read as it is behind the statement
        elif isinstance(asked, Made):
            self._wait(statement, "it is there again.")
        elif isinstance(asked, NotInRows) and asked.policy == "onSwap" and not isinstance(asked, ChangedUntold):
            self._read_again(statement, asked)

    def _read_again(self, statement: StatementRow, asked: NotInRows) -> None:
        policies = {"onTruncate": self.settings.on_truncate, "onSwap": self.settings.on_swap}
        if policies.get(asked.policy, self.settings.on_alter) == "stop":
            raise self._error(statement, f"{asked.why} {asked.policy}=stop asks to stop there.")
        self._wait(statement, asked.why)

    def _wait(self, statement: StatementRow, why: str) -> None:
        """Leave the target as it is until the table is read again."""
        self.row = waiting(self.row, self.number, f"read again behind {_shown(statement)}: {why}", state=READING)

    def _known(self, statement: StatementRow) -> bool:
        """Tell whether the definition was read behind the statement."""
        gtid = Gtid.parse(statement.gtid)
        last = GtidPosition.parse(self.row.defined_at).get(gtid.domain_id)
        return last is not None and last.seq_no >= gtid.seq_no

    def _check_early(self, statement: StatementRow, asked: Asked) -> None:
        """Read the table again where its rows are of another definition than ours: the first come from before that was
        read.
        """
        harmless = isinstance(asked, Evolved) and not asked.actions and asked.definition == self.row.table
        harmless = harmless and same_defaults(self._defaults_behind(statement), self.row.defaults)
        first = statement == self.statements[0] and not self._begun_before
        new = isinstance(asked, Made) and first and not self.row.rows
        came = self._new and isinstance(asked, NotInRows)  # under this name, with rows that it had before
        if came or (not (harmless or new) and (self.facts.changes or self.row.rows)):
            self._wait(statement, "the table was changed while the mirror began to read it.")

    def _empty(self, statement: StatementRow) -> None:
        if self.settings.on_truncate == "stop":
            raise self._error(statement, "onTruncate=stop asks to stop there.")
        self._mode.empty(self._target, statement)

    def _drop(self, statement: StatementRow) -> None:
        self.row = self.row._replace(state=DROPPED, waits_for=None, error=None)
        if self.settings.on_drop == "drop":
            self._target.drop()
        else:
            self._mode.end(self._target, statement)

    def _evolve(self, statement: StatementRow, asked: Evolved) -> None:
        if asked.actions and self.settings.on_alter == "stop":
            raise self._error(statement, "onAlter=stop asks to stop there.")
        lost = lost_key(statement.sql, asked.definition, self.row.keys)
        if lost is not None:
            self._wait(statement, lost)
            return
        keeps = self.row.mode != CURRENT or self.settings.rule_of(self.row.name).where is not None
        values = () if self._mode.append_only else asked.values
        if values and keeps:
            self._wait(statement, "it gives a new column values in rows that were there.")
            return
        try:
            ruled = checked_rule(self._spark, asked.definition, self.row.keys, self.settings)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        if asked.actions:
            self._target.alter(self._mode.columns(ruled.columns), asked.actions)
        if values:
            told = ", ".join(f"{identifier(name)} = {value}" for name, value in values)
            self._spark.sql(f"UPDATE {self.row.target} SET {told}")  # noqa: S608  (names and values are quoted)
        self.row = self.row.defined(asked.definition, self._defaults_behind(statement))

    def _defaults_behind(self, statement: StatementRow) -> Defaults:
        return defaults_behind(statement.sql, self.row.name, self.row.defaults)

    def _error(self, statement: StatementRow, why: str) -> SchemaError:
        table = ".".join(self.row.name)
        return SchemaError(
            f"{table} cannot be kept equal behind {_shown(statement)}: {why}", hint=RESYNC.format(table=table)
        )


def kept_in(spark: SparkSession, settings: MirrorSettings) -> StorageLevel:
    """Return where a part of a batch is kept: not on disk where its rows have values that rules hide."""
    encrypted = spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") == "true"
    in_memory = settings.hides and not encrypted
    return StorageLevel.MEMORY_ONLY if in_memory else StorageLevel.MEMORY_AND_DISK_DESER


def _place_of(statement: StatementRow) -> Column:
    from pyspark.sql import functions as f

    return f.struct(
        f.lit(statement.number).cast("bigint").alias("sequence_number"),
        f.lit(statement.ordinal).cast("bigint").alias("ordinal"),
    )


def _shown(statement: StatementRow) -> str:
    sql = " ".join(statement.sql.split())
    return f"{statement.gtid}, {sql if len(sql) <= _SHOWN_CHARACTERS else f'{sql[:_SHOWN_CHARACTERS]}…'}"
