"""The targets of a mirror: made from the catalog's word on their tables.

In: a table of the server. Out: an empty target with its columns, comments and properties, and its first row of the
control table. A target of this mirror that is there is replaced, with its history kept. Refused: a table that is there
and is not this mirror's; a source table whose rows no key tells apart.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from replica.errors import ConfigError, SchemaError
from streaming_source.mirroring.control import NO_BATCH, READING, ControlRow, defined, exists
from streaming_source.mirroring.kept_target import keep_rows
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.kinds import check_names
from streaming_source.mirroring.rule_check import checked_rule
from streaming_source.ruling.kept_rule import kept_rule
from streaming_source.ruling.target_columns import (
    KEY,
    MIRROR,
    SOURCE,
    create_statement,
    image_type,
    target_keys,
    text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.kept_target import NewReading
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.source_tables import SourceTable
    from streaming_source.ruling.target_columns import TargetColumn


class Targets:
    """Makes targets for one mirror."""

    def __init__(
        self, settings: MirrorSettings, spark: SparkSession, mirror: str, reading: NewReading | None = None
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._mirror = mirror
        self._reading = reading

    def begin(self, name: TableName, table: SourceTable, position: str, *, again: str | None = None) -> ControlRow:
        """Make an empty target, in the place of one that this mirror made before.

        Raises:
            ConfigError: there is a table of the name, and it is not this mirror's.
            SchemaError: the source table has no key.
        """
        named = self._settings.rule_of(name).mode
        mode = mode_of(named)
        if not table.keys and not mode.append_only:
            raise SchemaError(
                f"{'.'.join(name)} has no primary key, and no unique index over columns that are all NOT NULL.",
                hint="Give it one, or leave it out (excludeTables).",
            )
        target = self._settings.names.target(name)
        space = self._settings.names.namespace(name)
        if space is not None:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
        ruled = checked_rule(self._spark, table.definition, table.keys, self._settings)
        check_names(".".join(name), named, ruled.columns)
        columns = mode.columns(ruled.columns)
        own = self._is_own(target)
        first = self.row(name, table, position, again=again)
        if own and self._reading is not None and self._reading.keeps(first):
            keep_rows(self._spark, self._reading, columns)
            return first
        if own and self._settings.names.folders:
            self._empty(target, columns, target_keys(table.keys, columns))
            return first
        properties = {
            **self._settings.properties,
            MIRROR: self._mirror,
            SOURCE: ".".join(name),
            KEY: ",".join(target_keys(table.keys, columns)),
        }
        self._spark.sql(create_statement(target, columns, table.comment, properties))
        return first

    def row(self, name: TableName, table: SourceTable, position: str, *, again: str | None = None) -> ControlRow:
        """Return the first row of the control table for a source table."""
        return ControlRow(
            mirror=self._mirror,
            source_database=name[0],
            source_table=name[1],
            target=self._settings.names.target(name),
            mode=self._settings.rule_of(name).mode,
            state=READING,
            keys=table.keys,
            position="",
            batch=NO_BATCH,
            rows=0,
            committed_at=None,
            lag=None,
            updated_at=dt.datetime.now(dt.UTC),
            error=None,
            definition=defined(table.definition, table.defaults),
            defined_at=position,
            again=again,
            rules=kept_rule(self._settings.rule_of(name), self._settings.hash_key),
        )

    def _empty(self, target: str, columns: tuple[TargetColumn, ...], keys: tuple[str, ...]) -> None:
        """Empty a target in a folder, where Delta has no CREATE OR REPLACE; other columns take the place of the old
        ones, and then none of them is NOT NULL.
        """
        wanted = image_type(columns)
        if [(field.name, field.dataType) for field in self._spark.table(target).schema] == [
            (field.name, field.dataType) for field in wanted
        ]:
            self._spark.sql(f"DELETE FROM {target}")  # noqa: S608  (the name is quoted)
            return
        folder = target.partition(".")[2].strip("`")
        nothing = self._spark.createDataFrame([], wanted)
        nothing.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(folder)
        told = f"{text(KEY)} = {text(','.join(keys))}"
        self._spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ({told})")

    def _is_own(self, target: str) -> bool:
        """Tell whether the target is there; refuse one that is not this mirror's."""
        if not exists(self._spark, target):
            return False
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {target}").collect()
        owner = {row["key"]: row["value"] for row in rows}.get(MIRROR)
        if owner != self._mirror:
            whose = "made by something else" if owner is None else f"of another mirror, {owner}"
            raise ConfigError(
                f"the target {target} is there and {whose}.",
                hint="Drop it, or choose another template for the names of targets (into).",
            )
        return True
