"""Application of a micro-batch to the target of one table.

`TableApplier` decides which steps are needed and their order. Statements come first (`ddl_applier.py`). Snapshot rows
are appended, because the target has none of them. Changes are one MERGE with the last change of each key. `TableBatch`
is the table's part of the micro-batch, with the operations on the target. `omitted_values` returns the values of
columns that images leave out. Each commit has a token, so a repeated micro-batch leaves the target unchanged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from replica.errors import ConfigError, SchemaError
from replica.schema.patterns import table_text
from replica.schema.text.sql_tokens import tokenize
from streaming_source.driver.own_session import in_session
from streaming_source.mirroring.batch.batch_facts import other_definition_of
from streaming_source.mirroring.batch.latest_rows import MOST_BYTES, LatestOfTable, fits_one_task, latest_rows
from streaming_source.mirroring.batch.table_rows import (
    INTERVAL,
    is_plain_pattern,
    rows_of_table,
    typed_columns,
    values_read,
)
from streaming_source.mirroring.control.control_table import NO_BATCH
from streaming_source.mirroring.control.states import doubted
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import NetChanges
from streaming_source.mirroring.reading.resnapshot import RESNAPSHOT_HINT
from streaming_source.mirroring.reading.rules import transformed_table
from streaming_source.mirroring.statements.added_values import NULL, value_of
from streaming_source.mirroring.statements.ddl_applier import DdlApplier
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
from streaming_source.mirroring.writers.target_format import CHANGES, READS
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.transforms.transformed_images import MIRROR, target_images, target_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import ColumnSchema
    from streaming_source.mirroring.batch.batch_facts import StatementRow, TableChanges
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.modes.mode import Mode
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.schema.row_schema import TableColumn
    from streaming_source.transforms.transformed_images import Transformed


@dataclass(slots=True)
class TableApplier:
    """Work on one table in one micro-batch."""

    part: TableBatch
    statements: list[StatementRow]
    changes_are_in: bool = False
    """Whether the native writer has merged the changes, so that only new rows are left to write."""
    reads_are_in: bool = False
    """Whether the native writer has appended the new rows: snapshot rows, or all rows in append_log."""
    failed: Exception | None = None
    """Error of the statements; None if they were applied."""
    _following: DdlApplier | None = None

    @property
    def row(self) -> ControlRow:
        """Current row of the table for the control table."""
        return self.part.row

    @property
    def facts(self) -> TableChanges:
        """Facts of the table in the micro-batch."""
        return self.part.facts

    @property
    def is_over(self) -> bool:
        """Whether all rows are written."""
        if not self.has_rows:
            return True
        if self.part.mode.append_only:
            return self.reads_are_in
        some = self.changes_are_in or self.reads_are_in
        return some and (self.changes_are_in or not self.facts.changes) and (self.reads_are_in or not self.facts.reads)

    def count(self) -> int | None:
        """Return the number of rows in the target before the micro-batch; None if this needs a scan."""
        return self.part.target.count()

    def follow(self) -> None:
        """Apply the statements at the beginning of the micro-batch.

        Raises:
            ConfigError: the target does not belong to this mirror any more.
            SchemaError: the table has to be suspended because of a statement.
        """
        if self.row.live:
            self.part.check_owner()
        self._following = DdlApplier(self.part, self.statements)
        self._following.follow()

    @property
    def has_rows(self) -> bool:
        """Whether there are rows to write, and the table does not wait for a re-snapshot."""
        wanted = self._following is None or self._following.rows_go_in
        return wanted and self.failed is None and self.row.live and self.facts.rows > 0

    def done(self) -> ControlRow:
        """Write the rows into the target, and return the table's row after the micro-batch.

        Raises:
            ConfigError: the target does not belong to this mirror any more.
            SchemaError: the table has to be suspended.
        """
        part = self.part
        if self.failed is not None:
            raise self.failed
        if self.has_rows and (why := part.other_definition()):
            part.wait(why)
        elif not self.is_over:
            part.check_owner()
            part.columns = typed_columns(part.row.table, part.settings.policy)
            self._write_rows()
        if self._following is not None:
            self._following.end()
        part.target.finish(part.facts.rows, part.commit)
        return part.row._replace(
            rows=part.row.rows + part.facts.rows,
            committed_at=part.facts.committed_at or part.row.committed_at,
        )

    def _write_rows(self) -> None:
        part = self.part
        if part.mode.append_only:
            part.append(part.rows())
        elif not part.mode.by_key and part.facts.changes:
            part.merge(part.rows(), READS)
        elif not part.mode.by_key:
            part.append(part.reads())
        elif part.facts.partial or (part.new and part.facts.changes):
            # The first micro-batch of a new target may have changes that are older than the snapshot rows.
            part.merge(part.rows())
        else:
            if part.facts.changes and not self.changes_are_in:
                part.merge_changes()
            if part.facts.reads and part.mode.can_append(part.target):
                part.append(part.reads())
            elif part.facts.reads:
                part.merge(part.rows().where("op = 'read'"), READS)


# An INSERT leaves out the columns that its statement does not name, unless a function or a trigger sets them
# (`TABLE::mark_columns_needed_for_insert` in the server). Such a column has its constant DEFAULT, or NULL, or the
# implicit value of a NOT NULL column. If the value is unknown, the table is suspended.


def omitted_value(column: ColumnSchema, default: str | None, kind: str, policy: ValuePolicy) -> KnownValue | None:
    """Return the value of a column that an INSERT leaves out; None if the value is unknown."""
    tokens = None if default is None else tuple(tokenize(default))
    if tokens is not None and [token.upper for token in tokens] == ["NULL"]:
        return NULL
    return value_of(column, tokens, kind, policy)


def omitted_columns(
    spark: SparkSession, row: ControlRow, columns: Sequence[TableColumn], policy: ValuePolicy
) -> OmittedColumns:
    """Return the known values of columns that images leave out."""
    import pyarrow as pa

    declared = {column.name: column for column in row.table.columns}
    known: dict[str, KnownValue] = {}
    for column in columns:
        if column.name in row.defaults:
            value = omitted_value(declared[column.name], row.defaults[column.name], column.type, policy)
            if value is not None and (value == NULL or column.type != INTERVAL):  # a target holds TIME as text
                known[column.name] = value
    wanted = [value.column().alias(str(number)) for number, value in enumerate(known.values())]
    made = pa.table(spark.range(1).select(*wanted).toArrow()) if wanted else pa.table({})
    found = {name: made.column(number).combine_chunks() for number, name in enumerate(known)}
    names = tuple(column.name for column in columns)
    return OmittedColumns(names, tuple(name in row.defaults for name in names), tuple(map(found.get, names)))


def omitted_values(rows: DataFrame, row: ControlRow, ruled: Transformed) -> dict[str, Column]:
    """Return the values of columns that inserts leave out, by column.

    Raises:
        SchemaError: a row lacks a column whose value is unknown.
    """
    from pyspark.sql import functions as f

    update = f.col("op") == "update"
    lacks = {side: f.coalesce(f.col(f"absent.{side}"), f.array().cast("array<string>")) for side in ("before", "after")}
    lacking = f.when(update, f.array_intersect(lacks["after"], lacks["before"])).otherwise(lacks["after"])
    absent = rows.select("op", "transaction.gtid", f.explode(lacking).alias("name"))
    found = absent.groupBy("name", "op").agg(f.min("gtid").alias("gtid")).collect()
    columns = {column.name: column for column in row.table.columns}
    kinds = {column.name: column.type for column in ruled.read_columns}
    defaults = row.defaults
    values = {}
    for name, op, gtid in sorted(found):
        if name not in kinds:
            continue  # the rule leaves it out
        if op == "read":  # snapshot rows are complete, except for generated columns
            raise _never_logged(row, [one for one, op, _ in found if op == "read" and one in kinds])
        if name not in defaults:
            raise _unknown(row, name, op, gtid, "it is a generated column, or its DEFAULT is not known")
        if op == "insert":
            value = omitted_value(columns[name], defaults[name], kinds[name], ruled.policy)
            if value is None:
                raise _unknown(row, name, op, gtid, "the value of its DEFAULT is not certain")
            values[name] = value.column()
    return values


def _unknown(row: ControlRow, name: str, op: str, gtid: str | None, why: str) -> SchemaError:
    table = table_text(row.name)
    where = "" if gtid is None else f" in the transaction {gtid}"
    return SchemaError(
        f"the row image of {op}{where} leaves out the column {name} of {table}. Its value is not known: {why}.",
        hint="Set binlog_row_image=FULL on the primary, or leave the column out by a rule (leaveOut). Then re-snapshot "
        f'the table: mirror_resnapshot(spark, tables=["{table}"], into=…).',
    )


def _never_logged(row: ControlRow, names: list[str]) -> SchemaError:
    table = table_text(row.name)
    listed = ", ".join(f'"{name}"' for name in sorted(names))
    return SchemaError(
        f"{table} has generated columns ({listed}), which this version of MariaDB leaves out of row images, whatever "
        "binlog_row_image is. Changes would lack their values.",
        hint=f'Start the mirror with the rule {{"{table}": {{"leaveOut": [{listed}]}}}} and resnapshot="{table}@WORD".',
    )


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TableBatch:
    """Part of one table in a micro-batch.

    Attributes:
        commit: the token of the commit that applies the changes.
        row: the table's row of the control table. Operations on the table replace it.
        replayed: the micro-batch may be a repeated one.
        kept: the table is re-snapshot from this micro-batch on, and the target keeps the older rows.
        columns: the columns into which rows are decoded; None if images have to be VARIANT because of a type.
        folder: the folder of the target, if delta-rs may write it.
        query_session: the session of the query, also after `use_session`.
    """

    settings: MirrorSettings
    batch: DataFrame
    commit: Commit
    row: ControlRow
    facts: TableChanges
    replayed: bool = False
    kept: bool = False
    columns: tuple[TableColumn, ...] | None = None
    folder: str | None = None
    query_session: SparkSession = field(init=False)
    target: TableWriter = field(init=False)

    def __post_init__(self) -> None:
        self.query_session = self.spark
        self.target = open_target(self.spark, self.row.target, made=self.made, folder=self.folder)

    def use_session(self, spark: SparkSession) -> None:
        """Use a session that no other table uses, because a commit token is a setting of the session."""
        self.batch = in_session(spark, self.batch)
        self.target = open_target(spark, self.row.target, made=self.made, folder=self.folder)

    @property
    def has_own_session(self) -> bool:
        """Whether the part has its own session."""
        return self.spark is not self.query_session

    @property
    def spark(self) -> SparkSession:
        """Session of the part."""
        return self.batch.sparkSession

    @property
    def new(self) -> bool:
        """Whether the target begins with this micro-batch."""
        return self.row.batch == NO_BATCH

    @property
    def made(self) -> bool:
        """Whether the target was created for this micro-batch, and is empty."""
        return self.new and not self.kept

    @property
    def mode(self) -> Mode:
        """Mode of the target."""
        return mode_of(self.row.mode, self.row.keys)

    def check_owner(self) -> None:
        """Refuse to write a table that replaced this mirror's target.

        Raises:
            ConfigError: the target exists, and its properties do not name this mirror.
        """
        if self.new or not self.target.exists():
            return
        owner = self.target.properties().get(MIRROR)
        if owner != self.row.mirror:
            has = "has no" if owner is None else f"has {owner} as its"
            raise ConfigError(
                f"its target {self.row.target} does not belong to this mirror any more: it {has} property {MIRROR}. "
                "Something else replaced or changed it.",
                hint=f"Drop it, or move it away. {RESNAPSHOT_HINT.format(table=table_text(self.row.name))}",
            )

    # -- definitions -------------------------------------------------------------------------------------------------

    def other_definition(self) -> str:
        """Return why rows of the micro-batch do not match the table's definition; '' if they do."""
        return other_definition_of(self.facts, self.row.table)

    def wait(self, why: str) -> None:
        """Leave the target unchanged until a re-snapshot, because rows have another definition.

        Raises:
            SchemaError: `onAlter=stop`.
        """
        table = ".".join(self.row.name)
        why = f"rows of {table} in batch {self.commit.batch} do not match the definition that the mirror has: {why}"
        if self.settings.on_alter == "stop":
            raise SchemaError(f"{why} onAlter=stop suspends the table.", hint=RESNAPSHOT_HINT.format(table=table))
        _log.warning("%s The table is re-snapshotted.", why)
        self.row = doubted(self.row, self.commit.batch, why)

    def lacking_columns(self) -> list[str]:
        """Return the columns that a Delta target lacks although the control row lists them."""
        ruled = transformed_table(self.spark, self.row.table, self.settings)
        existing = {spark_column_key(name) for name in self.target.rows().columns}
        wanted = (column.name for column in self.mode.columns(ruled.columns))
        return [name for name in wanted if spark_column_key(name) not in existing]

    # -- rows --------------------------------------------------------------------------------------------------------

    def rows(self) -> DataFrame:
        """Return all rows, as envelopes."""
        return rows_of_table(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    def reads(self) -> DataFrame:
        """Return the snapshot rows, with only the columns that are appended."""
        values = self.mode.appends_values and is_plain_pattern(self.row.name)
        # values alone do not show which columns images lack
        if self.columns is None or not values or self.facts.partial:
            return self.rows().where("op = 'read'")
        return values_read(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    @property
    def _wide(self) -> bool:
        return self.settings.options.sequence_numbers == "decimal"

    # -- into the target ---------------------------------------------------------------------------------------------

    def append(self, rows: DataFrame) -> None:
        """Append rows. The caller guarantees that the target has none of them."""
        at = self.commit.of(READS)
        self.target.append(self.mode.appended(self._part(rows, at)), at)

    def merge(self, rows: DataFrame, part: str = CHANGES) -> None:
        """Apply changes and snapshot rows by their keys.

        Args:
            rows: envelope rows.
            part: the part of the micro-batch to which the rows belong, for the commit token.
        """
        self.target.apply(self.mode, self._part(rows, self.commit.of(part)))

    def merge_changes(self) -> None:
        """Apply all changes. If one task can find the last change of each key, only these are merged."""
        latest = None if self.columns is None or not self.mode.needs_latest_only else self.one_task(self.columns)
        if latest is None:
            self.merge(self.rows().where("op <> 'read'"))
            return
        rows, keys = latest_rows(self.batch, latest, self.facts), self.row.keys
        names = [column.name for column in transformed_table(self.spark, self.row.table, self.settings).columns]
        change = NetChanges(rows, self.target, keys, names, partial=False, domains=False, at=self.commit, reduced=True)
        self.target.apply(self.mode, change)

    @property
    def plain(self) -> bool:
        """Return True if the rows can be read by the table's name and written without a rule.

        This needs a table whose values no rule changes, and a name that selects no other table if used as a pattern.
        """
        rule = self.settings.rule_of(self.row.name)
        return rule.where is None and not rule.named and is_plain_pattern(self.row.name)

    def one_task(
        self, columns: tuple[TableColumn, ...], most_bytes: int = MOST_BYTES, *, partial: bool = False
    ) -> LatestOfTable | None:
        """Return the function of the one task that finds the last change of each key; None if one task cannot do it.

        Args:
            columns: the columns into which images are decoded.
            most_bytes: the limit of the task, in bytes of the binlog.
            partial: whether the task can use images that lack columns.
        """
        if not (self.plain and fits_one_task(self.facts, columns, self.row.keys, most_bytes, partial=partial)):
            return None
        return LatestOfTable.by_names(self.row.name, columns, self.row.keys)

    def _part(self, rows: DataFrame, at: Commit) -> NetChanges:
        """Return change rows with the columns of the target."""
        ruled = transformed_table(self.spark, self.row.table, self.settings)
        if self.facts.partial and not self.mode.append_only:
            ruled = ruled._replace(left_out=omitted_values(rows, self.row, ruled))
        return NetChanges(
            rows=target_images(rows, ruled),
            target=self.target,
            keys=target_keys(self.row.keys, ruled.columns),
            columns=[column.name for column in ruled.columns],
            partial=self.facts.partial,
            domains=self.facts.domains > 1,
            at=at,
        )


def kept_in(spark: SparkSession, settings: MirrorSettings) -> StorageLevel:
    """Return the storage level of a cached micro-batch. Values that rules hide are never cached on disk."""
    if settings.hides and spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") != "true":
        return StorageLevel.MEMORY_ONLY
    return StorageLevel.MEMORY_AND_DISK_DESER
