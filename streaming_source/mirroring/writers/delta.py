"""Delta tables as targets: in a catalog or in folders, in all modes.

Each call is a commit, which says its mirror, batch and position as the user's metadata (`versions.py`). An append is
known to Delta by the number of its batch; a table with statements in a batch goes back to its version before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.rows.tables.widening import fits
from streaming_source.mirroring.statements.column_names import renamed
from streaming_source.mirroring.writers.delta_sql import altered, create_if_absent, create_or_replace, set_properties
from streaming_source.mirroring.writers.target_format import AddColumns, DropColumns, DropNotNull, RenameColumn, SetType
from streaming_source.mirroring.writers.versions import has_batch, version_at
from streaming_source.queries.delta_fit import check_delta
from streaming_source.queries.delta_folder import DELTA, path_of
from streaming_source.queries.short_errors import SPARK_ERRORS
from streaming_source.queries.sql_text import braced, identifier
from streaming_source.ruling.target_columns import KEY, PROPERTIES, image_type
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.target_modes import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.writers.target_format import Appended, TargetAction
    from streaming_source.ruling.target_columns import TargetColumn

_TEXT: Final = "STRING"
_WIDENING: Final = "delta.enableTypeWidening"
_AS_TEXT: Final = re.compile(r"tinyint|smallint|int|bigint|date|decimal\(\d+,\d+\)")
"""Types whose values Spark writes as the server does."""
_FOLDER_GONE: Final = "DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE"


class DeltaFormat:
    """Delta tables."""

    name = DELTA
    modes = frozenset(MEANINGS)
    only_folders = False
    own_properties = PROPERTIES

    def check_session(self, spark: SparkSession) -> None:
        """Refuse a session without Delta, or with one for another Spark."""
        check_delta(spark, required=True)

    def target(self, spark: SparkSession, name: str, batch: int | None = None, *, again: bool = False) -> DeltaTarget:  # noqa: ARG002  (its commits know their batch)
        """Open a target."""
        return DeltaTarget(spark, name)

    def control(self, spark: SparkSession, name: str) -> DeltaControl:
        """Return the control table of a name."""
        return DeltaControl(spark, name)


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table as a mirror knows it."""

    spark: SparkSession
    name: str

    def exists(self) -> bool:
        """Tell whether there is a table of the name, or in the folder."""
        from pyspark.errors import AnalysisException

        try:
            return self.spark.table(self.name).schema is not None
        except AnalysisException:
            return False

    def properties(self) -> dict[str, str]:
        """Return its properties."""
        return {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}


class DeltaTarget(DeltaTable):
    """One target."""

    __slots__ = ()

    def count(self) -> int:
        """Return how many rows it has, which Delta's log tells."""
        return self.spark.table(self.name).count()

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Make it, or replace it with its history kept."""
        folder = path_of(self.name)  # of a target that no catalog has
        if folder is not None and self.exists():
            self._empty(folder, columns, properties)
        else:
            statement = create_or_replace(self.name, columns, comment, properties)
            try:
                self.spark.sql(statement)
            except SPARK_ERRORS as error:
                if _FOLDER_GONE not in str(error):
                    raise
                self.drop()  # something removed the folder of a table that the catalog still has
                self.spark.sql(statement)

    def alter(self, columns: Sequence[TargetColumn], actions: Sequence[TargetAction] | None = None) -> None:
        """Run the actions, each as a commit.

        Raises:
            SchemaError: without actions: the rows that are there have values of a type that the columns do not hold.
        """
        if actions is None:
            self._as_text(columns)
            actions = self._actions({column.name: column for column in columns})
        self._run(action for action in actions if not self._is_wider(action))

    def rename(self, names: Mapping[str, str | None]) -> None:
        """Drop columns whose names others get, and rename those."""
        there = self.spark.table(self.name).columns
        kept = {old: new for new, old in names.items() if old is not None and old in there}
        gone = tuple(name for name in there if name in names and name not in kept)
        others = [name for name in there if name not in kept and name not in gone]
        self._run([*([DropColumns(gone)] if gone else []), *renamed(kept, others)])

    def _run(self, actions: Iterable[TargetAction]) -> None:
        for action in actions:
            if isinstance(action, SetType) and self.properties().get(_WIDENING) != "true":
                self.spark.sql(set_properties(self.name, {_WIDENING: "true"}))
            self.spark.sql(altered(self.name, action))

    def _is_wider(self, action: TargetAction) -> bool:
        """Tell whether a column has a wider type already, which older rows of a target that keeps them need."""
        if not isinstance(action, SetType):
            return False
        return fits(action.type, self.spark.table(self.name).schema[action.name].dataType.simpleString().upper())

    def _as_text(self, columns: Sequence[TargetColumn]) -> None:
        """Make STRING of columns that are of another type, and are to be of that: their values as text."""
        there = {field.name: field.dataType.simpleString() for field in self.spark.table(self.name).schema}
        for column in columns:
            if column.type != _TEXT or not _AS_TEXT.fullmatch(there.get(column.name, "")):
                continue
            meanwhile, name = f"_text_of_{column.name}", identifier(column.name)
            self._run([AddColumns((column._replace(name=meanwhile),))])
            self.spark.sql(f"UPDATE {self.name} SET {identifier(meanwhile)} = CAST({name} AS STRING)")  # noqa: S608  (the names are quoted)
            self._run([DropColumns((column.name,)), RenameColumn(meanwhile, column.name)])

    def fill(self, values: Mapping[str, Column]) -> None:
        """Give all rows these values, as one commit."""
        added = self.spark.range(1).select(*(value.alias(f"v{n}") for n, value in enumerate(values.values())))
        told = ", ".join(f"target.{braced(identifier(name))} = added.v{n}" for n, name in enumerate(values))
        merge = f"MERGE INTO {braced(self.name)} AS target USING {{added}} AS added ON true"
        self.spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET {told}", added=added)

    def append(self, rows: DataFrame, once: Appended | None = None) -> None:
        """Append rows as one commit."""
        known = {} if once is None else {"txnAppId": f"{once.mirror}/read", "txnVersion": str(once.batch)}
        rows.writeTo(self.name).options(**known).append()

    def finish(self, rows: int) -> None:
        """Do nothing: each append was seen at once."""

    def go_back(self, row: ControlRow, batch: int) -> None:
        """Go back to the version before the batch, if there is a commit of the batch."""
        if has_batch(self.spark, row, batch):
            self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {version_at(self.spark, row)}")

    def drop(self) -> None:
        """Drop the table."""
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name}")

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows of the version that belongs to a control row."""
        return self.spark.read.option("versionAsOf", version_at(self.spark, row)).table(self.name)

    def _empty(self, folder: str, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Empty a target in a folder, where Delta has no CREATE OR REPLACE; other columns take the place of the old
        ones, and then none of them is NOT NULL.
        """
        wanted = image_type(columns)
        there = [(field.name, field.dataType) for field in self.spark.table(self.name).schema]
        if there == [(field.name, field.dataType) for field in wanted]:
            self.spark.sql(f"DELETE FROM {self.name}")  # noqa: S608  (the name is quoted)
            return
        nothing = self.spark.createDataFrame([], wanted)
        nothing.write.format(DELTA).mode("overwrite").option("overwriteSchema", "true").save(folder)
        self.spark.sql(set_properties(self.name, {KEY: properties[KEY]}))

    def _actions(self, wanted: dict[str, TargetColumn]) -> list[TargetAction]:
        there = {field.name: field for field in self.spark.table(self.name).schema}
        gone = tuple(name for name in there if name not in wanted)
        actions: list[TargetAction] = [DropColumns(gone)] if gone else []
        for name, field in there.items():
            column = wanted.get(name)
            if column is not None:
                actions += _retyped(self.name, name, field.dataType, column)
            if column is not None and column.nullable and not field.nullable:
                actions.append(DropNotNull(name))
        added = tuple(column for name, column in wanted.items() if name not in there)
        return [*actions, AddColumns(added)] if added else actions


def _retyped(target: str, name: str, there: DataType, column: TargetColumn) -> list[TargetAction]:
    """Return the action that gives a column another type; none where the type that is there holds the values too.

    Raises:
        SchemaError: the values of the old type are none of the new one.
    """
    kind = there.simpleString().upper()
    if there == spark_type(column.type) or fits(column.type, kind):
        return []
    if not fits(kind, column.type):
        raise SchemaError(
            f"the rows in {target} have {name} as {kind}, and it is {column.type} now: older rows cannot stay with it.",
            hint="Drop the target or move it away, and have the table read again (mirror_resync).",
        )
    return [SetType(name, column.type)]


class DeltaControl(DeltaTable):
    """The control table, of which each state is one commit."""

    __slots__ = ()

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Make it without rows, where it is not there."""
        self.spark.sql(create_if_absent(self.name, columns, properties))

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns."""
        self.spark.sql(altered(self.name, AddColumns(tuple(columns))))

    def rows(self) -> DataFrame:
        """Return its rows."""
        return self.spark.table(self.name)

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows."""
        from pyspark.sql import functions as f

        rows.writeTo(self.name).overwrite(f.lit(True))
