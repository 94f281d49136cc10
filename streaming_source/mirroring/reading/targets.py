"""Creation of targets from the definitions of their tables.

In: a table of the server. Out: an empty target with its columns, comments and properties, and its first row of the
control table. An existing target of this mirror is replaced, and the table format keeps its versions. Refused: an
existing table that does not belong to this mirror, and a source table without a key, unless its mode needs none.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from replica.errors import ConfigError, SchemaError
from replica.schema.patterns import table_text
from replica.snapshot.check.table_verdict import rows_elsewhere
from streaming_source.mirroring.control.control_table import NO_BATCH, READING, ControlRow, definition_text
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import check_names
from streaming_source.mirroring.reading.resnapshot import keep_rows
from streaming_source.mirroring.reading.rules import checked_rule
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.native.writer import NATIVE, renewed
from streaming_source.schema.target_modes import CURRENT
from streaming_source.transforms.table_rules import kept_rule
from streaming_source.transforms.transformed_images import KEY, MIRROR, SOURCE, target_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.reading.resnapshot import NewReading
    from streaming_source.mirroring.reading.source_tables import SourceTable
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.writers.target_format import TableWriter


class Targets:
    """Factory of the targets of one mirror.

    Args:
        reading: the re-snapshot that needs a target; None if no table is re-snapshot.
    """

    def __init__(
        self, settings: MirrorSettings, spark: SparkSession, mirror: str, reading: NewReading | None = None
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._mirror = mirror
        self._reading = reading
        self.kept = False
        """Whether the target that was begun last keeps its older rows."""

    def begin(self, name: TableName, table: SourceTable, position: str, *, again: str | None = None) -> ControlRow:
        """Create an empty target, in place of the one that this mirror created before.

        Returns:
            The first row of the control table for the table.

        Raises:
            ConfigError: a table with this name exists, and does not belong to this mirror.
            SchemaError: the source table has no key, or its rows are stored in other tables.
        """
        named = self._settings.rule_of(name).mode
        mode = mode_of(named, table.keys)
        counted = named == CURRENT and self._settings.options.snapshot_unkeyed == "whole"
        if not table.keys and not mode.append_only and not counted:
            but = f", except one with {table.ambiguous}, whose label '' looks the same as an invalid value"
            raise SchemaError(
                f"{table_text(name)} has no primary key, and no unique index over columns that are all NOT NULL"
                f"{but if table.ambiguous else ''}.",
                hint="Give it one, leave it out (excludeTables), or let the mirror count its rows, in the mode current "
                "(snapshotUnkeyed=whole).",
            )
        elsewhere = "" if mode.append_only else rows_elsewhere(table.engine)
        if elsewhere:
            raise SchemaError(
                f"{'.'.join(name)} cannot be mirrored: {elsewhere}.", hint="Leave it out (excludeTables)."
            )
        target = open_target(self._spark, self._settings.names.target(name))
        space = self._settings.names.namespace(name)
        if space is not None:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
        ruled = checked_rule(self._spark, table.definition, table.keys, self._settings)
        check_names(table_text(name), named, ruled.columns)
        columns = mode.columns(ruled.columns)
        own = self._is_own(target)
        first = self.row(name, table, position, again=again)
        if own and self._reading is not None and self._reading.keeps(first):
            keep_rows(target, self._reading, columns)
            self.kept = True
            return first
        properties = {
            **self._settings.properties,
            MIRROR: self._mirror,
            SOURCE: table_text(name),
            KEY: ",".join(target_keys(table.keys, columns)),
        }
        native = own and self._settings.writer == NATIVE
        if not (native and renewed(self._spark, target.name, columns, table.comment, properties)):
            target.create(columns, table.comment, properties)
        return first

    def row(self, name: TableName, table: SourceTable, position: str, *, again: str | None = None) -> ControlRow:
        """Return the first row of the control table for a source table."""
        now = dt.datetime.now(dt.UTC)
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
            updated_at=now,
            error=None,
            definition=definition_text(table.definition),
            defined_at=position,
            again=again,
            rules=kept_rule(self._settings.rule_of(name), self._settings.hash_key),
            defaults=table.defaults,
            created_at=now,
        )

    def _is_own(self, target: TableWriter) -> bool:
        """Return True if the target exists. Refuse a target that does not belong to this mirror."""
        if not target.exists():
            return False
        owner = target.properties().get(MIRROR)
        if owner != self._mirror:
            if owner is None:
                raise ConfigError(
                    f"the target {target.name} exists, and no mirror created it.",
                    hint="Drop it, or choose another template for the names of targets (into).",
                )
            raise ConfigError(
                f"the target {target.name} belongs to another mirror, {owner}. This mirror is {self._mirror}, with "
                f"the control table {self._settings.names.control}.",
                hint="Choose another template for the names of targets (into) for this mirror. Drop the target only if "
                "the other mirror does not run any more.",
            )
        return True
