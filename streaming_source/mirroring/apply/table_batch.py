"""Part of a micro-batch that belongs to one table: its rows, and the operations that write them.

In: the micro-batch, the table's row of the control table, the table's facts. Out: rows, appends and MERGEs, and the
table's row after them. `table_applier.py` and `ddl_applier.py` decide about the operations and their order.
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
from streaming_source.mirroring.reading.requests import RESNAPSHOT_HINT
from streaming_source.mirroring.reading.rule_check import transformed_table
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.versions import CHANGES, READS
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.transforms.target_columns import MIRROR, target_keys
from streaming_source.transforms.transformed_images import target_images

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
    """Part of one table in a micro-batch.

    Attributes:
        commit: the token of its changes.
        row: the table's row of the control table. Operations on the table replace it.
        replayed: the micro-batch may be a repeated one.
        kept: the table is re-snapshot from this micro-batch on, and the target keeps the older rows.
        columns: the columns into which rows are decoded; None if images have to be VARIANT because of a type.
        folder: the folder of the target, if delta-rs may write it.
        query_session: the session of the query, also after `move`.
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
        """Use a session that no other table uses, because a commit token is a setting of the session."""
        self.batch = in_session(spark, self.batch)
        self.target = open_target(spark, self.row.target, made=self.made, folder=self.folder)

    @property
    def moved(self) -> bool:
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
            told = "has no" if owner is None else f"has {owner} as its"
            raise ConfigError(
                f"its target {self.row.target} does not belong to this mirror any more: it {told} property {MIRROR}. "
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
        """Return the columns that a Delta target should have and lacks."""
        ruled = transformed_table(self.spark, self.row.table, self.settings)
        there = {spark_column_key(name) for name in self.spark.table(self.target.name).columns}
        wanted = (column.name for column in self.mode.columns(ruled.columns))
        return [name for name in wanted if spark_column_key(name) not in there]

    # -- rows --------------------------------------------------------------------------------------------------------

    def rows(self) -> DataFrame:
        """Return all rows, as envelopes."""
        return rows_of_table(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    def reads(self) -> DataFrame:
        """Return the snapshot rows, with only the columns that are appended."""
        values = self.mode.appends_values and by_name_alone(self.row.name)
        # values alone do not show which columns images lack
        if self.columns is None or not values or self.facts.partial:
            return self.rows().where("op = 'read'")
        return values_read(self.batch, self.row.name, self.columns, self.facts, wide_sequence=self._wide)

    @property
    def _wide(self) -> bool:
        return self.settings.options.sequence_numbers == "decimal"

    # -- into the target ---------------------------------------------------------------------------------------------

    def append(self, rows: DataFrame) -> None:
        """Append rows of which the target has none."""
        at = self.commit.of(READS)
        self.target.append(self.mode.appended(self._part(rows, at)), at)

    def merge(self, rows: DataFrame, part: str = CHANGES) -> None:
        """Apply changes and snapshot rows by their keys; `part`: their part of the micro-batch."""
        self.target.apply(self.mode, self._part(rows, self.commit.of(part)))

    def merge_changes(self) -> None:
        """Apply all changes; if possible, only the last change of each key, which one task finds."""
        latest = None if self.columns is None or not self.mode.takes_reduced else self.one_task(self.columns)
        if latest is None:
            self.merge(self.rows().where("op <> 'read'"))
            return
        rows, keys = latest_rows(self.batch, latest, self.facts), self.row.keys
        names = [column.name for column in transformed_table(self.spark, self.row.table, self.settings).columns]
        change = NetChanges(rows, self.target, keys, names, partial=False, domains=False, at=self.commit, reduced=True)
        self.target.apply(self.mode, change)

    @property
    def plain(self) -> bool:
        """Whether the target has the table's values unchanged, and the table's name as a pattern selects only it."""
        rule = self.settings.rule_of(self.row.name)
        return rule.where is None and not rule.named and by_name_alone(self.row.name)

    def one_task(
        self, columns: tuple[TableColumn, ...], most_bytes: int = MOST_BYTES, *, partial: bool = False
    ) -> LatestOfTable | None:
        """Return the task that finds the last change of each key, decoded into `columns`; None if one task cannot.

        `partial`: the task can use images that lack columns.
        """
        if not (self.plain and fits_one_task(self.facts, columns, self.row.keys, most_bytes, partial=partial)):
            return None
        return LatestOfTable.by_names(self.row.name, columns, self.row.keys)

    def _part(self, rows: DataFrame, at: Commit) -> NetChanges:
        """Return change rows with the columns of the target."""
        ruled = transformed_table(self.spark, self.row.table, self.settings)
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
    """Return the storage level of a cached micro-batch: not on disk if its rows have values that rules hide."""
    if settings.hides and spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") != "true":
        return StorageLevel.MEMORY_ONLY
    return StorageLevel.MEMORY_AND_DISK_DESER
