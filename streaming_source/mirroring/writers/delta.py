"""Delta tables as targets: in a catalog or in folders, in all modes.

Each commit has its token (`Commit`) as user metadata. A commit of rows also has it as a transaction of Delta, which
skips a commit that the table already has. For steps of statements, the mirror looks for their tokens in the log: each
action of an ALTER has one. An `alter` without actions starts from the columns that the target has.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.rows.tables.plan import fits
from streaming_source.auditing.mirror.from_mirror import version_of
from streaming_source.driver.hadoop_files import hadoop_path
from streaming_source.mirroring.statements.alterations import renamed
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, has_rows, remove_rows
from streaming_source.mirroring.writers.native.table_commits import altered, set_columns
from streaming_source.mirroring.writers.target_format import (
    METADATA,
    ROWS,
    UNNUMBERED,
    AddColumns,
    DropColumns,
    DropNotNull,
    RenameColumn,
    SetType,
    parts_in,
    version_at,
)
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import CURRENT, MEANINGS
from streaming_source.sinks.delta import (
    DELTA,
    check_delta,
    has_delta,
    known_folder,
    local_path,
    no_delta_error,
    path_of,
    planned_location,
)
from streaming_source.sinks.delta_folders import read_delta
from streaming_source.sinks.queries import SPARK_ERRORS
from streaming_source.sinks.sql_text import braced, identifier, literal
from streaming_source.transforms.transformed_images import KEY, MIRROR, PROPERTIES, image_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.control.target_names import TargetNames
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import Commit, ControlStore, TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn
# Delta makes the folder of a table, and folders for its log, before the first commit. After a crash between these
# steps, Delta refuses to create a table in the folder, because the folder is neither empty nor a Delta table.
# `create_table` removes such a log and tries once more. It never removes a folder that has a commit, a data file or
# another file with an owner.


_NOT_EMPTY: Final = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_LOG: Final = "_delta_log"


def create_table(spark: SparkSession, name: str, statement: str) -> None:
    """Run the statement that creates a table, also after an interrupted creation of the same table."""
    try:
        spark.sql(statement)
    except SPARK_ERRORS as error:
        if _NOT_EMPTY not in str(error) or not remove_log(spark, name):
            raise
        spark.sql(statement)


def remove_log(spark: SparkSession, name: str) -> bool:
    """Remove the log of a table that has no commit. Return False if the folder has anything else."""
    location = planned_location(spark, name)
    if location is None:
        return False
    place, files = hadoop_path(spark, location)
    if [str(entry.getPath().getName()) for entry in files.listStatus(place)] != [_LOG]:
        return False
    log, _ = hadoop_path(spark, f"{location.rstrip('/')}/{_LOG}")
    listed = files.listFiles(log, True)
    while listed.hasNext():
        if not str(listed.next().getPath().getName()).startswith("."):  # Delta writes a commit under such a name first
            return False
    return bool(files.delete(log, True))


SPARK: Final = "spark"
"""Writer that never uses delta-rs."""
_log = logging.getLogger(__name__)
_WRITER: Final = "spark.databricks.delta.write.txnAppId"
_NUMBER: Final = "spark.databricks.delta.write.txnVersion"
"""Setting with the number in the next write's token. Delta skips a write whose number is not above the last one."""
TEXT: Final = "STRING"
_WIDENING: Final = "delta.enableTypeWidening"
AS_TEXT: Final = re.compile(r"tinyint|smallint|int|bigint|date|decimal\(\d+,\d+\)")
"""Types whose values Spark converts to the same text as the server."""

_FOLDER_MISSING: Final = "DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE"


def next_metadata(spark: SparkSession) -> str:
    """Return the user metadata that the session gives its next commit."""
    return str(spark.conf.get(METADATA, "{}"))


class DeltaFormat:
    """Format of Delta tables."""

    name = DELTA
    modes = frozenset(MEANINGS)
    only_folders = False
    own_properties = PROPERTIES

    def check_session(self, spark: SparkSession, names: TargetNames, writer: str) -> None:
        """Refuse a Delta for another Spark. Without Delta, refuse everything but local folders that delta-rs writes."""
        check_delta(spark)
        if has_delta(spark):
            return
        if writer == SPARK:
            raise no_delta_error("writer=spark")
        for name in (names.target(("database", "table")), names.control):
            path = path_of(name)
            if path is None:
                raise no_delta_error("a mirror into tables of a catalog")
            if local_path(path) is None:
                raise no_delta_error("a mirror into storage other than a local disk")

    def target(self, spark: SparkSession, name: str, *, made: bool = False, folder: str | None = None) -> DeltaTarget:
        """Open a target."""
        if has_delta(spark):
            return DeltaTarget(spark, name, made, folder)
        from streaming_source.mirroring.writers.folder_target import FolderTarget

        return FolderTarget(spark, name, made, folder)

    def control(self, spark: SparkSession, name: str) -> ControlStore:
        """Return the control table of this name."""
        if has_delta(spark):
            return DeltaControl(spark, name)
        from streaming_source.mirroring.writers.folder_target import FolderControl

        return FolderControl(spark, name)


@dataclass(slots=True)
class DeltaTable:
    """Delta table of a mirror: a target or the control table."""

    spark: SparkSession
    name: str

    def exists(self) -> bool:
        """Return True if there is a table of this name, or in this folder."""
        from pyspark.errors import AnalysisException

        try:
            return self.spark.table(self.name).schema is not None
        except AnalysisException:
            return False

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}


@dataclass(slots=True)
class DeltaTarget(DeltaTable):
    """Target that is a Delta table.

    Attributes:
        made: the target was created for this micro-batch, and has no commit of an earlier attempt.
        folder: the folder of the target, if delta-rs may write it.
    """

    made: bool = False
    folder: str | None = None
    _parts: frozenset[str] | None = None

    def count(self) -> int | None:
        """Return the number of rows, which Spark reads from Delta's log."""
        return self.rows().count()

    def rows(self) -> DataFrame:
        """Return the current rows."""
        return read_delta(self.spark, self.name)

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Create the target, or replace it and keep its versions."""
        folder = path_of(self.name)  # None for a catalog table
        if folder is not None and self.exists():
            self._empty(folder, columns, properties)
        else:
            statement = create_or_replace(self.name, columns, comment, properties)
            try:
                create_table(self.spark, self.name, statement)
            except SPARK_ERRORS as error:
                if _FOLDER_MISSING not in str(error):
                    raise
                self.drop()  # the folder was removed, and the catalog still has the table
                self.spark.sql(statement)

    def has(self, at: Commit) -> bool:
        """Return True if the target has a commit. The rows of a micro-batch are committed after its statements."""
        if self.made:
            return False
        if self._parts is None:
            self._parts = parts_in(self.spark, self.name, at)
            if self._has_rows(at):
                self._parts |= ROWS
        return at.part in self._parts or not ROWS.isdisjoint(self._parts)

    def _has_rows(self, at: Commit) -> bool:
        """Return True if Delta has the token of the micro-batch's rows.

        Delta keeps this token when it cleans the log.
        """
        folder = known_folder(self.spark, self.name)
        try:
            return folder is not None and has_rows(folder, at)
        except (ImportError, NativeWriteError) as refused:
            _log.debug("the transactions of %s cannot be read without Spark: %s", self.name, refused)
            return False

    def _once(self, at: Commit, write: Callable[[], object]) -> None:
        """Write one commit, unless the table already has it."""
        settings = {METADATA: at.metadata}
        if at.part in ROWS:
            settings |= {} if self.made else {_WRITER: at.writer, _NUMBER: str(at.batch)}
        elif self.has(at):
            return
        with _set(self.spark, settings):
            write()

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:
        """Run the actions, one commit each; without actions, run those that lead from the existing columns to these.

        Raises:
            SchemaError: without actions: existing rows have values of a type that the new columns do not hold.
        """
        with _set(self.spark, {METADATA: at.of(UNNUMBERED).metadata}):
            wanted: Sequence[TargetAction] = actions or ()
            if actions is None:
                self._as_text(columns)
                wanted = self._actions({column.name: column for column in columns})
            if any(isinstance(one, SetType) for one in wanted):
                self._allow_wider()
            for number, action in enumerate(wanted):
                self._change(action, None if actions is None else at.step(number))

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Rename columns. Drop columns whose names other columns get."""
        # An earlier attempt of the micro-batch may have renamed some columns, so the names are those from before the
        # micro-batch.
        before = version_of(self.spark, self.name, at.mirror, at.batch - 1)
        existing = read_delta(self.spark, self.name, before).columns
        kept = {old: new for new, old in names.items() if old is not None and old in existing}
        dropped = tuple(name for name in existing if name in names and name not in kept)
        others = [name for name in existing if name not in kept and name not in dropped]
        actions: list[TargetAction] = [DropColumns(dropped)] if dropped else []
        for number, action in enumerate([*actions, *renamed(kept, others)]):
            self._change(action, at.step(number))

    def _change(self, action: TargetAction, at: Commit | None = None) -> None:
        if at is not None:
            self._once(at, lambda: self._change(action))
        elif not self._is_wider(action):
            self._carry_out(action)

    def _carry_out(self, action: TargetAction) -> None:
        if isinstance(action, AddColumns):
            if self._adds_columns(action):
                return
            # A commit that no store confirmed may have added them.
            existing = {spark_column_key(name) for name in self.rows().columns}
            missing = tuple(column for column in action.columns if spark_column_key(column.name) not in existing)
            if not missing:
                return
            action = AddColumns(missing)
        self.spark.sql(alter_table(self.name, action))

    def _adds_columns(self, action: AddColumns) -> bool:
        """Add columns without Spark, because its first ALTER takes a second; return False if Spark has to do it."""
        if self.folder is None:
            return False
        try:
            set_columns(self.folder, lambda fields: altered(fields, action), next_metadata(self.spark))
        except (ImportError, NativeWriteError) as refused:
            _log.debug("Spark adds the columns of %s: %s", self.name, refused)
            return False
        return True

    def _allow_wider(self) -> None:
        """Give the target the property without which Delta refuses a wider type."""
        if self.properties().get(_WIDENING) != "true":
            self.spark.sql(set_properties(self.name, {_WIDENING: "true"}))

    def _is_wider(self, action: TargetAction) -> bool:
        """Return True if a column already has a wider type, because the target keeps older rows that need it."""
        if not isinstance(action, SetType):
            return False
        return fits(action.type, self.rows().schema[action.name].dataType.simpleString().upper())

    def _as_text(self, columns: Sequence[TargetColumn]) -> None:
        """Convert columns to STRING if their type changes to STRING."""
        types = {field.name: field.dataType.simpleString() for field in self.rows().schema}
        for column in columns:
            meanwhile, name = f"_text_of_{column.name}", identifier(column.name)
            if column.type != TEXT or not (meanwhile in types or AS_TEXT.fullmatch(types.get(column.name, ""))):
                continue
            if meanwhile not in types:
                self._change(AddColumns((column._replace(name=meanwhile),)))
            if column.name in types:  # else an earlier attempt did this step
                self.spark.sql(f"UPDATE {self.name} SET {identifier(meanwhile)} = CAST({name} AS STRING)")  # noqa: S608
                self._change(DropColumns((column.name,)))
            self._change(RenameColumn(meanwhile, column.name))

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Set columns of all rows to these values, in one commit."""
        added = self.spark.range(1).select(*(value.column().alias(f"v{n}") for n, value in enumerate(values.values())))
        values_set = ", ".join(f"target.{braced(identifier(name))} = added.v{n}" for n, name in enumerate(values))
        merge = f"MERGE INTO {braced(self.name)} AS target USING {{added}} AS added ON true"
        merge = f"{merge} WHEN MATCHED THEN UPDATE SET {values_set}"
        self._once(at, lambda: self.spark.sql(merge, added=added))

    def truncate(self, at: Commit) -> None:
        """Delete all rows; if possible by delta-rs, because Spark needs seconds for it."""

        def delete() -> None:
            try:
                if self.folder is not None:
                    remove_rows(self.folder, TargetShape(CURRENT, (), (), ((MIRROR, at.mirror),)), at.metadata)
                    return
            except NativeWriteError as refused:
                _log.debug("%s is emptied by Spark: %s", self.name, refused)
            self.spark.sql(f"DELETE FROM {self.name}")  # noqa: S608  (the name is quoted)

        self._once(at, delete)

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Run the MERGE of a mode, or append its rows."""
        rows, merge = mode.merge(changes)
        merged = partial(self.spark.sql, merge, changes=rows)
        self._once(changes.at, merged if merge else rows.writeTo(self.name).append)

    def merge(self, statement: str, rows: DataFrame, placeholder: str) -> None:
        """Run a MERGE with the token of the session."""
        self.spark.sql(statement, **{placeholder: rows})

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """Run the UPDATE of a mode."""
        self._once(at, lambda: self.spark.sql(mode.end_statement(self, statement)))

    def append(self, rows: DataFrame, at: Commit) -> None:
        """Append rows in one commit."""
        self._once(at, rows.writeTo(self.name).append)

    def finish(self, rows: int, at: Commit) -> None:
        """Do nothing: each append is visible at once."""

    def restore(self, row: ControlRow) -> None:
        """Reset the target to the version that belongs to the control row."""
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {version_at(self.spark, row)}")

    def drop(self) -> None:
        """Drop the table."""
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name}")

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows of the version that belongs to a control row."""
        return read_delta(self.spark, self.name, version_at(self.spark, row))

    def _empty(self, folder: str, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Empty a target in a folder: Delta has no CREATE OR REPLACE for folders.

        If the new columns differ, they replace the old ones, and all columns are nullable.
        """
        wanted = image_type(columns)
        existing = [(field.name, field.dataType) for field in self.spark.table(self.name).schema]
        if existing == [(field.name, field.dataType) for field in wanted]:
            self.spark.sql(f"DELETE FROM {self.name}")  # noqa: S608  (the name is quoted)
            return
        nothing = self.spark.createDataFrame([], wanted)
        nothing.write.format(DELTA).mode("overwrite").option("overwriteSchema", "true").save(folder)
        self.spark.sql(set_properties(self.name, {KEY: properties[KEY]}))

    def _actions(self, wanted: dict[str, TargetColumn]) -> list[TargetAction]:
        existing = {field.name: field for field in self.rows().schema}
        dropped = tuple(name for name in existing if name not in wanted)
        actions: list[TargetAction] = [DropColumns(dropped)] if dropped else []
        for name, field in existing.items():
            column = wanted.get(name)
            if column is not None:
                actions += _retyped(self.name, name, field.dataType, column)
            if column is not None and column.nullable and not field.nullable:
                actions.append(DropNotNull(name))
        added = tuple(column for name, column in wanted.items() if name not in existing)
        return [*actions, AddColumns(added)] if added else actions


@contextlib.contextmanager
def _set(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session for the duration of a block. No other thread may use the session meanwhile."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _retyped(target: str, name: str, current: DataType, column: TargetColumn) -> list[TargetAction]:
    """Return the action that changes the type of a column. Return no action if the existing type holds the values, too.

    Raises:
        SchemaError: the new type does not hold the values of the old type.
    """
    kind = current.simpleString().upper()
    if current == spark_type(column.type) or fits(column.type, kind):
        return []
    if not fits(kind, column.type):
        raise SchemaError(
            f"the rows in {target} have {name} as {kind}, and its type is {column.type} now. Older rows cannot stay.",
            hint="Drop the target or move it away, and re-snapshot the table (mirror_resnapshot).",
        )
    return [SetType(name, column.type)]


class DeltaControl(DeltaTable):
    """Control table that is a Delta table; each state is one commit."""

    __slots__ = ()

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Create the control table without rows, if it does not exist."""
        statement = create_if_absent(self.name, columns, properties)
        create_table(self.spark, self.name, statement)
        if not self.exists() and remove_log(self.spark, self.name):  # Delta took an unfinished log for a table
            self.spark.sql(statement)

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns."""
        self.spark.sql(alter_table(self.name, AddColumns(tuple(columns))))

    def rows(self) -> DataFrame:
        """Return the rows of the control table."""
        return self.spark.table(self.name)

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows."""
        from pyspark.sql import functions as f

        rows.writeTo(self.name).overwrite(f.lit(True))


# SQL statements that create Delta tables and change their columns. `sql_text.py` quotes their names and texts. Delta's
# typed builder supports only two-part names: no folders and no catalogs.


def create_or_replace(table: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> str:
    """Return the statement that creates an empty table, or replaces an existing one."""
    about = f"{_comment(comment)} {_properties(properties)}"
    return f"CREATE OR REPLACE TABLE {table} ({_listed(columns)}) USING delta{about}"


def create_if_absent(table: str, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> str:
    """Return the statement that creates an empty table if there is none."""
    return f"CREATE TABLE IF NOT EXISTS {table} ({_listed(columns)}) USING delta {_properties(properties)}"


def set_properties(table: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets properties of a table."""
    return f"ALTER TABLE {table} SET {_properties(properties)}"


def alter_table(table: str, action: TargetAction) -> str:
    """Return the statement for an action."""
    match action:
        case AddColumns():
            change = f"ADD COLUMNS ({', '.join(map(_any_value, action.columns))})"
        case DropColumns():
            change = f"DROP COLUMNS ({', '.join(map(identifier, action.names))})"
        case RenameColumn():
            change = f"RENAME COLUMN {identifier(action.old)} TO {identifier(action.new)}"
        case SetType():
            change = f"ALTER COLUMN {identifier(action.name)} TYPE {action.type}"
        case _:
            change = f"ALTER COLUMN {identifier(action.name)} DROP NOT NULL"
    return f"ALTER TABLE {table} {change}"


def _listed(columns: Iterable[TargetColumn]) -> str:
    return ", ".join(
        f"{identifier(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}{_comment(column.comment)}"
        for column in columns
    )


def _any_value(column: TargetColumn) -> str:
    return f"{identifier(column.name)} {column.type}{_comment(column.comment)}"


def _comment(comment: str) -> str:
    return f" COMMENT {literal(comment)}" if comment else ""


def _properties(properties: Mapping[str, str]) -> str:
    return f"TBLPROPERTIES ({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
