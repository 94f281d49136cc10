"""The columns of a target: those of the table's rows in the stream, as Delta can hold them.

In: a table definition and the policy for values. Out: `TargetColumn`s, their SQL, and the statement that makes the
target. A TIME is text as SELECT prints it, because Delta has no intervals. NOT NULL stands where no row can break it:
not at types whose impossible values become NULL. Refused: a column whose type cannot be decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.rows.types.types import output_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema

KEY: Final = "mariadb.key"
MIRROR: Final = "mariadb.mirror"
SOURCE: Final = "mariadb.table"
PROPERTIES: Final = {
    "delta.columnMapping.mode": "name",  # names that Parquet refuses, RENAME and DROP COLUMN
    "delta.enableDeletionVectors": "true",  # a MERGE marks rows, and need not write whole files again
    "delta.enableTypeWidening": "true",
}
"""The properties that every target has, unless the call says otherwise."""
_MAY_BECOME_NULL: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})
_INTERVAL: Final = "INTERVAL DAY TO SECOND"


class TargetColumn(NamedTuple):
    """A column as it stands in the target."""

    name: str
    type: str
    nullable: bool
    comment: str

    @property
    def sql(self) -> str:
        """The column in CREATE TABLE."""
        return f"{identifier(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}{_comment(self.comment)}"

    @property
    def nullable_sql(self) -> str:
        """The column in ADD COLUMNS."""
        return f"{identifier(self.name)} {self.type}{_comment(self.comment)}"


def target_columns(table: TableSchema, policy: ValuePolicy) -> tuple[TargetColumn, ...]:
    """Return the columns in the table's order."""
    found = []
    for column in table.columns:
        kind = output_column(column, policy).spark
        kind = "STRING" if kind == _INTERVAL else kind
        # Under the policy null, an impossible date of a NOT NULL column is NULL in its row.
        nullable = column.nullable or (kind in _MAY_BECOME_NULL and policy.invalid_dates == "null")
        found.append(TargetColumn(column.name, kind, nullable, column.comment))
    return tuple(found)


def create_statement(target: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> str:
    """Return the statement that makes an empty target, in the place of one of this mirror that is there."""
    told = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
    about = f" COMMENT {text(comment)}" if comment else ""
    listed = ", ".join(column.sql for column in columns)
    return f"CREATE OR REPLACE TABLE {target} ({listed}) USING delta{about} TBLPROPERTIES ({told})"


def image_type(columns: Sequence[TargetColumn]) -> StructType:
    """Return the type that a row image is cast to."""
    from pyspark.sql.types import StructType

    from streaming_source.schema.row_schema import spark_type

    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type), nullable=True)
    return schema


def identifier(name: str) -> str:
    """Return a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """Return a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _comment(comment: str) -> str:
    return f" COMMENT {text(comment)}" if comment else ""
