"""The columns of a target: those of the table's rows in the stream, in types of Delta.

`target_columns` takes a table definition, the policy for values and the table's rule, and returns `TargetColumn`s. A
TIME is text as SELECT prints it, because Delta has no intervals. A column is NOT NULL only if no row can violate that,
so not for types whose impossible values become NULL. Columns that the rule omits are absent, and hashes are text. A
column whose type cannot be decoded is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.rows.types.types import output_column
from replica.schema.text.naming import column_key
from streaming_source.schema.spark_names import refuse_clash
from streaming_source.transforms.table_rules import TableRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.types import StructType

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema

KEY: Final = "mariadb.key"
MIRROR: Final = "mariadb.mirror"
SOURCE: Final = "mariadb.table"
PROPERTIES: Final = {
    "delta.columnMapping.mode": "name",  # names that Parquet refuses, RENAME and DROP COLUMN
    "delta.enableDeletionVectors": "true",  # a MERGE marks rows instead of rewriting whole files
    "delta.enableRowTracking": "true",  # lets a reader that follows rows distinguish an update from another row
    "delta.enableTypeWidening": "true",
    "delta.feature.timestampNtz": "supported",  # otherwise no DATETIME could be added later
}
"""Properties of every target, unless the call overrides them."""
NOT_NATIVE: Final = frozenset({"delta.enableRowTracking", "delta.enableTypeWidening"})
"""Properties with which delta-rs cannot write tables."""
WHOLE: Final = TableRule()
"""The rule of tables that are copied unchanged."""
_MAY_BECOME_NULL: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})
_INTERVAL: Final = "INTERVAL DAY TO SECOND"


class TargetColumn(NamedTuple):
    """A column of the target. `source`: its name in the table, if that differs."""

    name: str
    type: str
    nullable: bool
    comment: str
    source: str = ""

    @property
    def of(self) -> str:
        """The column of the table that it is made from."""
        return self.source or self.name


def target_columns(table: TableSchema, policy: ValuePolicy, rule: TableRule = WHOLE) -> tuple[TargetColumn, ...]:
    """Return the columns in the table's order."""
    left_out, hashes = _folded(rule.leave_out), _folded(rule.hash)
    null = _folded(name for name, value in rule.mask.items() if value is None)
    renamed = {column_key(name): new for name, new in rule.rename.items()}
    found = []
    for column in table.columns:
        key = column_key(column.name)
        if key in left_out:
            continue
        kind = output_column(column, policy).spark
        kind = "STRING" if kind == _INTERVAL else kind
        # With invalidDates=null, an impossible date of a NOT NULL column is NULL in its row.
        nullable = column.nullable or (kind in _MAY_BECOME_NULL and policy.invalid_dates == "null") or key in null
        name = renamed.get(key, column.name)
        source = column.name if name != column.name else ""
        found.append(TargetColumn(name, "STRING" if key in hashes else kind, nullable, column.comment, source))
    refuse_clash(table.name, [column.name for column in table.columns])
    return tuple(found)


def target_keys(keys: Sequence[str], columns: Sequence[TargetColumn]) -> tuple[str, ...]:
    """Return the names of these columns of the table in the target."""
    names = {column.of: column.name for column in columns}
    return tuple(names.get(key, key) for key in keys)


def image_type(columns: Sequence[TargetColumn]) -> StructType:
    """Return the type that a row image is cast to."""
    from pyspark.sql.types import StructType

    from streaming_source.schema.row_schema import spark_type

    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type), nullable=True)
    return schema


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(column_key(name) for name in names)
