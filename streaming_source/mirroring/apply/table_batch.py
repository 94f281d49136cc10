"""One table's part of a micro-batch: its rows, and the ways by which they come into its target.

In: the batch, the table's row of the control table, what the batch has of it. Out: rows as they are wanted, appends and
MERGEs, and the table's row behind them. Which of them, and in which order, say `table_applier.py` and `ddl_applier.py`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from replica.errors import ConfigError, SchemaError
from replica.schema.patterns import table_text
from streaming_source.driver.own_session import in_session
from streaming_source.mirroring.apply.omitted_columns import values_left_out
from streaming_source.mirroring.batch.latest_rows import MOST_BYTES, LatestOfTable, fits_one_task, latest_rows
from streaming_source.mirroring.batch.met_definitions import other_definition_of
from streaming_source.mirroring.batch.table_rows import by_name_alone, rows_of_table, values_read
from streaming_source.mirroring.control.control_row import NO_BATCH
from streaming_source.mirroring.control.states import doubted
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import NetChanges
from streaming_source.mirroring.reading.reread import RESYNC
from streaming_source.mirroring.reading.rule_check import ruled_table
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.versions import CHANGES, READS
from streaming_source.ruling.ruled_images import target_images
from streaming_source.ruling.target_columns import MIRROR, target_keys
from streaming_source.schema.spark_names import spark_column_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.batch.batch_facts import TableChanges
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.modes.mode import Mode
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.schema.row_schema import TableColumn

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TableBatch:
    """The part of one table. `row` is what the control table has of it, and changes with what is brought in.

    `commit`: the token of its changes. `replayed`: the batch may have been tried before. `kept`: its table is read
    again from this batch on, and the target keeps the older rows. `columns`: what rows are decoded into; None if their
    images are VARIANT, because a type has no other way. `folder`: where the target lies, if delta-rs may write it.
    `query_session`: that of the query, also after the part has a session of its own.
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

    def move(self, spark: SparkSession) -> None:
        """Go on in a session that no other table uses: a token is a setting of the session that writes."""
        self.batch = in_session(spark, self.batch)
        self.target = open_target(spark, self.row.target, made=self.made, folder=self.folder)

    @property
    def moved(self) -> bool:
        """Whether it has a session of its own."""
        return self.spark is not self.query_session

    @property
    def spark(self) -> SparkSession:
        """The session of the batch."""
        return self.batch.sparkSession

    @property
    def new(self) -> bool:
        """Whether the target begins with this batch."""
        return self.row.batch == NO_BATCH

    @property
    def made(self) -> bool:
        """Whether the target was made for this batch, and is empty."""
        return self.new and not self.kept

    @property
    def mode(self) -> Mode:
        """What the target holds."""
        return mode_of(self.row.mode, self.row.keys)

    def check_owner(self) -> None:
        """Refuse to write a table that took the place of this mirror's target.

        Raises:
            ConfigError: the target is there, and does not say that it is of this mirror.
        """
        if self.new or not self.target.exists():
            return
        owner = self.target.properties().get(MIRROR)
        if owner != self.row.mirror:
            told = "has no" if owner is None else f"has {owner} as its"
            raise ConfigError(
                f"its target {self.row.target} is not this mirror's any more: it {told} property {MIRROR}. Something "
                "else made it again, or changed it.",
                hint=f"Drop it, or move it away. {RESYNC.format(table=table_text(self.row.name))}",
            )

    # -- definitions -------------------------------------------------------------------------------------------------

    def other_definition(self) -> str:
        """Return why rows of the batch are not of the table's definition, '' if they are."""
        return other_definition_of(self.facts, self.row.table)

    def wait(self, why: str) -> None:
        """Leave the target as it is until the table is read again, because rows are of another definition.

        Raises:
            SchemaError: `onAlter=stop`.
        """
        table = ".".join(self.row.name)
        why = f"rows of {table} in batch {self.commit.batch} are not of the definition that the mirror has: {why}"
        if self.settings.on_alter == "stop":
            raise SchemaError(f"{why} onAlter=stop asks to stop there.", hint=RESYNC.format(table=table))
        _log.warning("%s The table is read again.", why)
        self.row = doubted(self.row, self.commit.batch, why)

    def lacking_columns(self) -> list[str]:
        """Return the columns that a Delta target should have, and does not."""
        ruled = ruled_table(self.spark, self.row.table, self.settings)
        there = {spark_column_key(name) for name in self.spark.table(self.target.name).columns}
        wanted = (column.name for column in self.mode.columns(ruled.columns))
        return [name for name in wanted if spark_column_key(name) not in there]

    # -- rows --------------------------------------------------------------------------------------------------------

    def rows(self) -> DataFrame:
        """Return all rows, as envelopes."""
        return rows_of_table(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    def reads(self) -> DataFrame:
        """Return the rows that were read, with no more than is appended."""
        values = self.mode.appends_values and by_name_alone(self.row.name)
        if self.columns is None or not values or self.facts.partial:  # values alone do not say what images lack
            return self.rows().where("op = 'read'")
        return values_read(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    @property
    def _wide(self) -> bool:
        return self.settings.options.sequence_numbers == "decimal"

    # -- into the target ---------------------------------------------------------------------------------------------

    def append(self, rows: DataFrame) -> None:
        """Append rows of which none can be there."""
        at = self.commit.of(READS)
        self.target.append(self.mode.appended(self._part(rows, at)), at)

    def merge(self, rows: DataFrame, part: str = CHANGES) -> None:
        """Apply changes, and rows that were read, by their keys; `part`: that of the batch which they are."""
        self.target.apply(self.mode, self._part(rows, self.commit.of(part)))

    def merge_changes(self) -> None:
        """Bring in all changes: where that can be done, by the last one of each key, as one task finds it."""
        latest = None if self.columns is None or not self.mode.takes_reduced else self.one_task(self.columns)
        if latest is None:
            self.merge(self.rows().where("op <> 'read'"))
            return
        rows, keys = latest_rows(self.batch, latest, self.facts), self.row.keys
        names = [column.name for column in ruled_table(self.spark, self.row.table, self.settings).columns]
        change = NetChanges(rows, self.target, keys, names, partial=False, domains=False, at=self.commit, reduced=True)
        self.target.apply(self.mode, change)

    @property
    def plain(self) -> bool:
        """Whether the target has the values of the table as they are, and the table's name selects no other."""
        rule = self.settings.rule_of(self.row.name)
        return rule.where is None and not rule.named and by_name_alone(self.row.name)

    def one_task(
        self, columns: tuple[TableColumn, ...], most_bytes: int = MOST_BYTES, *, partial: bool = False
    ) -> LatestOfTable | None:
        """Return the task that finds the last change of each key, decoded into `columns`; None if one task cannot.
        `partial`: whether it can with images that lack columns.
        """
        if not (self.plain and fits_one_task(self.facts, columns, self.row.keys, most_bytes, partial=partial)):
            return None
        return LatestOfTable.by_names(self.row.name, columns, self.row.keys)

    def _part(self, rows: DataFrame, at: Commit) -> NetChanges:
        """Give change rows the columns of the target."""
        ruled = ruled_table(self.spark, self.row.table, self.settings)
        if self.facts.partial and not self.mode.append_only:
            ruled = ruled._replace(left_out=values_left_out(rows, self.row, ruled))
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
    """Return where a part of a batch is kept: not on disk where its rows have values that rules hide."""
    if settings.hides and spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") != "true":
        return StorageLevel.MEMORY_ONLY
    return StorageLevel.MEMORY_AND_DISK_DESER
