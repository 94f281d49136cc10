"""Creation of targets: at the start of a mirror, for tables that are created later, and for re-snapshots.

`Beginnings.begin_all`, `begin_new` and `begin_resnapshots` replace rows of the control table by those of the new
targets. A table that cannot have a target is suspended, or waits if the reason is temporary. All other tables continue.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, ReplicaError, SchemaError
from replica.schema.patterns import matcher, table_text
from replica.snapshot.check.table_verdict import rows_elsewhere
from streaming_source.mirroring.apply.faults import fault_of_all, raise_fault
from streaming_source.mirroring.apply.suspension import kept, suspended
from streaming_source.mirroring.control.control_table import (
    DROPPED,
    NO_BATCH,
    READING,
    ControlRow,
    definition_text,
    make_control,
)
from streaming_source.mirroring.control.states import doubted, dropped
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import check_names
from streaming_source.mirroring.reading.resnapshot import RESNAPSHOT_HINT, NewReading, keep_rows
from streaming_source.mirroring.reading.rules import checked_rule
from streaming_source.mirroring.reading.source_tables import hidden, read_source_tables, unknown_table, unreadable
from streaming_source.mirroring.statements.alterations import widen_views
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.native.writer import NATIVE, renewed
from streaming_source.schema.spark_names import refuse_clash
from streaming_source.schema.target_modes import CURRENT
from streaming_source.sinks.queries import LONGEST_TEXT, SPARK_ERRORS, side_by_side, without_plan
from streaming_source.transforms.table_rules import kept_rule
from streaming_source.transforms.transformed_images import KEY, MIRROR, SOURCE, target_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.reading.source_tables import SourceTable, SourceTables
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.reading_options import ResnapshotOption

    Rows = dict[TableName, ControlRow]
# In: a table of the server. Out: an empty target with its columns, comments and properties, and its first row of the
# control table. An existing target of this mirror is replaced, and the table format keeps its versions. Refused: an
# existing table that does not belong to this mirror, and a source table without a key, unless its mode needs none.


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


_HIDDEN: Final = (
    "the account has no SELECT on it, or lost it, so its rows may not have been read. GRANT SELECT on it to the "
    "account."
)

_MEND: Final = (
    "Correct what Spark refuses (into, tableProperties, the target's storage), or leave the table out (excludeTables). "
    "If the target exists and cannot be read, drop it or move it away."
)

_STORAGE: Final = (
    "Correct into, control or tableProperties, or give the session the catalog, the jar and the settings that the "
    "storage needs."
)

_UNSETTLED: Final = "it was altered each time that its definition was read."

_log = logging.getLogger(__name__)


class Beginnings:
    """Snapshots that begin with one micro-batch, whose token is `commit`.

    Each method changes `rows`, the rows of the control table.
    """

    def __init__(self, settings: MirrorSettings, spark: SparkSession, commit: Commit, rows: Rows) -> None:
        self.kept: set[TableName] = set()
        """Tables that are re-snapshot while their targets keep the older rows."""
        self._settings = settings
        self._spark = spark
        self._commit = commit
        self._mirror = commit.mirror
        self._rows = rows
        self._number = commit.batch

    def begin_all(self) -> None:
        """Create the control table and the targets of all tables that the server has.

        A table that cannot have a target, or cannot be read, is suspended.

        Raises:
            ReplicaError, PySparkException: no table can have a target, or the fault does not concern one table.
        """
        spark, names, checkpoint = self._spark, self._settings.names, self._settings.checkpoint
        try:
            make_control(spark, names.control, names.control_namespace, checkpoint, self._settings.control_properties)
        except SPARK_ERRORS as error:
            raise_fault(error, written=0)
            raise unmade(f"the control table {names.control}", error, _STORAGE) from None
        found = read_source_tables(self._settings.options)
        broken: dict[TableName, Exception] = dict(unreadable(self._settings.options))
        tables = {name: unknown_table(name) for name in broken} | found.tables
        position = str(found.position)
        targets = Targets(self._settings, spark, self._mirror)
        broken |= names.meetings(tables.keys() - broken.keys())

        def begin(name: TableName) -> ControlRow | Exception:
            table = tables[name]
            if table.unsettled:
                return doubted(targets.row(name, table, position), self._number, _UNSETTLED)
            try:
                refuse_clash(table_text(name), [column.name for column in table.definition.columns])
                return targets.begin(name, table, position)
            except (ReplicaError, *SPARK_ERRORS) as error:  # the catalog refuses a name or a type
                return error

        chosen = sorted(tables.keys() - broken.keys())
        made = side_by_side(spark, begin, chosen, at_once=self._settings.parallel, name="mirror-begin")
        outcomes = dict(zip(chosen, made, strict=True))
        self._rows |= {name: one for name, one in outcomes.items() if isinstance(one, ControlRow)}
        failed = {name: one for name, one in outcomes.items() if isinstance(one, Exception)}
        fault = fault_of_all(failed.values(), written=len(self._rows))
        if fault is not None:
            raise fault
        if failed and not self._rows:
            raise self._shown(*next(iter(failed.items())), then="")
        broken |= {name: self._shown(name, why) for name, why in failed.items()}
        for name, why in sorted(broken.items()):
            self._rows[name] = suspended(targets.row(name, tables[name], position), why)

    def begin_resnapshots(self, end: SourceOffset, before: SourceOffset | None) -> set[TableName]:
        """Create the targets for re-snapshots that begin with this micro-batch.

        Args:
            end: the end of the micro-batch.
            before: the beginning of the micro-batch; None for the first micro-batch.

        Returns:
            The names of the tables.

        Raises:
            ConfigError: an earlier start planned the micro-batch with another value of the option resnapshot.
        """
        names = set() if end.asked is None else set(end.asked.tables)
        option = self._started_option(end, before)
        if option is not None:
            pattern = matcher(option.patterns)
            names |= {name for name in self._rows if pattern.fits(name)}
        names &= self._rows.keys()
        if not names:
            return names
        found = read_source_tables(self._settings.options)
        unseen = set(hidden(self._settings.options, sorted(names - found.tables.keys())))
        for name in sorted(names):
            old = self._rows[name]
            if name in unseen:
                self._rows[name] = suspended(old, hidden_error(name))
            elif name not in found.tables:
                self._rows[name] = dropped(old)
            else:
                self._rows[name] = self._begin_resnapshot(old, found, end, option)
        return names

    def begin_new(self, facts: BatchFacts) -> None:
        """Create targets for tables of the micro-batch that are new on the server: the control table lacks them."""
        new = sorted(facts.tables.keys() - self._rows.keys())
        if not new:
            return
        found = read_source_tables(self._settings.options)
        targets = Targets(self._settings, self._spark, self._mirror)
        for name in new:
            if name in found.tables:
                self._rows[name] = self._begun(targets, name, found)
            elif (fault := facts.tables[name].fault) is not None:
                _log.error("%s is not mirrored: %s", table_text(name), fault)
        widen_views(self._settings.options, facts, [name for name in new if name not in found.tables])

    def _begin_resnapshot(
        self, old: ControlRow, found: SourceTables, end: SourceOffset, option: ResnapshotOption | None
    ) -> ControlRow:
        """Replace the target of a table by an empty one. The old target may belong to an earlier name of the table."""
        last = max([old, *(row for row in self._sharing(old.name) if not _has_target(row))], key=lambda row: row.batch)
        targets = Targets(self._settings, self._spark, old.mirror, NewReading(last, end.position, self._commit))
        row = self._begun(targets, old.name, found, again=old.again if option is None else option.word)
        self.kept |= {old.name} if targets.kept else set()
        row = row._replace(tries=old.tries + 1)
        return kept(row, old, self._number) if row.live else row

    def _begun(self, targets: Targets, name: TableName, found: SourceTables, *, again: str | None = None) -> ControlRow:
        """Create a target, and return the first control row of its table.

        If the target belongs to another table that no longer exists, the table waits: the stream may still have the
        statement that renamed the other table.
        """
        table, position = found.tables[name], str(found.position)
        row = targets.row(name, table, position, again=again)
        holder = next((one for one in self._sharing(name) if _has_target(one)), None)
        if holder is not None and holder.name in found.tables:
            return suspended(row, self._settings.names.meeting(holder.name, name))
        if holder is not None:
            return doubted(row, self._number, f"it takes over the target of {table_text(holder.name)}.")
        if table.unsettled:
            return doubted(row, self._number, _UNSETTLED)
        try:
            return targets.begin(name, table, position, again=again)
        except (ReplicaError, *SPARK_ERRORS) as error:
            raise_fault(error, written=0)
            return suspended(row, self._shown(name, error))

    def _shown(self, name: TableName, error: Exception, then: str = RESNAPSHOT_HINT) -> Exception:
        """Return the reason why a target was not created, with a hint if the error is Spark's.

        Args:
            name: the table.
            error: the error.
            then: what to do after the cause is removed.
        """
        if not isinstance(error, SPARK_ERRORS):
            return error
        hint = f"{_MEND} {then.format(table=table_text(name))}".strip()
        return unmade(f"the target {self._settings.names.target(name)}", error, hint)

    def _started_option(self, end: SourceOffset, before: SourceOffset | None) -> ResnapshotOption | None:
        """Return the resnapshot option whose re-snapshots begin with this micro-batch, or None."""
        option = self._settings.options.resnapshot
        if end.again is None or (before is not None and before.again == end.again):
            return None
        if option is not None and option.word == end.again:
            return option
        if before is None:
            return None  # the first micro-batch begins a snapshot of all tables
        raise ConfigError(
            f"the repeated batch re-snapshots tables for resnapshot=…@{end.again}, and this start of the "
            "mirror does not name them.",
            hint="Start the mirror with the earlier resnapshot option until the batch is done.",
        )

    def _sharing(self, name: TableName) -> list[ControlRow]:
        """Return the rows of other tables with the same target: names that differ only by case share one."""
        key = self._settings.names.key(name)
        return [row for row in self._rows.values() if row.name != name and self._settings.names.key(row.name) == key]


def unmade(what: str, error: Exception, hint: str) -> ConfigError:
    """Make the error for a table that Spark could not create."""
    return ConfigError(f"{what} cannot be created: {without_plan(error)[:LONGEST_TEXT]}", hint=hint)


def hidden_error(name: TableName) -> ConfigError:
    """Make the error for a table that the account may not read."""
    return ConfigError(_HIDDEN, hint=RESNAPSHOT_HINT.format(table=table_text(name)))


def _has_target(row: ControlRow) -> bool:
    """Return True if a table has its target. A table has none before its first snapshot, and after it is dropped."""
    return row.state != DROPPED and (row.live or row.batch != NO_BATCH)
