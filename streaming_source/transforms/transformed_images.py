"""Row images of a batch after the rule of their table.

`target_images` takes envelope rows of one table, with images that are VARIANT or STRUCTs of all its columns. It returns
the rows that match the filter, with images as structs of the target's columns. These structs lack omitted columns, and
have constants for masked columns, hashes, and new names. A row that begins to match the filter becomes an insert, and
one that stops matching becomes a delete.

The rule is applied to each row before a shuffle, so that no shuffle file has hidden values. A value that does not have
its type fails the batch with an error that names only its column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.rows.types.types import output_column
from replica.schema.text.naming import column_key
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.spark_names import refuse_clash, spark_column_key
from streaming_source.sinks.sql_text import identifier
from streaming_source.transforms.hashes import SIDES, hash_text, hashed
from streaming_source.transforms.table_rules import TableRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema
    from streaming_source.transforms.hashes import HashKey
# `target_columns` takes a table definition, the policy for values and the table's rule, and returns `TargetColumn`s. A
# TIME is text as SELECT prints it, because Delta has no intervals. A column is NOT NULL only if no row can have NULL in
# it. So columns are nullable if impossible values of their type become NULL. Columns that the rule omits are absent,
# and hashes are text. A column whose type cannot be decoded is an error.


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

UNCHANGED: Final = TableRule()
"""The rule of tables that are copied unchanged."""
_MAY_BECOME_NULL: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})
_INTERVAL: Final = "INTERVAL DAY TO SECOND"


class TargetColumn(NamedTuple):
    """Column of the target.

    Attributes:
        source: its name in the table, if the names differ.
    """

    name: str
    type: str
    nullable: bool
    comment: str
    source: str = ""

    @property
    def of(self) -> str:
        """Name of the table's column from which the column is made."""
        return self.source or self.name


def target_columns(table: TableSchema, policy: ValuePolicy, rule: TableRule = UNCHANGED) -> tuple[TargetColumn, ...]:
    """Return the columns in the table's order."""
    left_out, hashes = folded(rule.leave_out), folded(rule.hash)
    null = folded(name for name, value in rule.mask.items() if value is None)
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


_LOGGED = "_logged"
"""Column with the `op` of a row in the binlog, before the filter."""


class Transformed(NamedTuple):
    """Table with its rule.

    Attributes:
        filtered: the columns that the rule's filter names.
        left_out: the values of columns that images of inserts omit. None: no image omits columns, or none has to be
            completed.
    """

    table: TableSchema
    policy: ValuePolicy
    rule: TableRule
    key: HashKey | None
    filtered: frozenset[str] = frozenset()
    left_out: Mapping[str, Column] | None = None

    @property
    def columns(self) -> tuple[TargetColumn, ...]:
        """Columns of the target."""
        return target_columns(self.table, self.policy, self.rule)

    @property
    def source_columns(self) -> tuple[TargetColumn, ...]:
        """Columns that the target would have without the rule."""
        return target_columns(self.table, self.policy)

    @property
    def read_columns(self) -> tuple[TargetColumn, ...]:
        """Columns of the table whose values the rule needs."""
        unseen = folded((*self.rule.leave_out, *self.rule.mask)) - folded(self.filtered)
        return tuple(column for column in self.source_columns if column_key(column.name) not in unseen)

    @property
    def hashes(self) -> tuple[str, ...]:
        """Columns of the target that have hashes."""
        wanted = folded(self.rule.hash)
        return tuple(column.name for column in self.columns if column_key(column.of) in wanted)


def target_images(rows: DataFrame, ruled: Transformed) -> DataFrame:
    """Return rows with images of the target's columns."""
    rule = ruled.rule
    rows = rows.withColumn(_LOGGED, rows["op"])
    if rule.where is not None:
        rows = _fitting(rows, ruled)
    if not rule.named:
        images = {side: _shown(rows, side, ruled.columns) for side in SIDES}
        return _completed(rows.withColumns(images), ruled.columns, ruled)
    unseen = folded((*rule.leave_out, *rule.mask))
    read = [column for column in ruled.source_columns if column_key(column.name) not in unseen]
    images = {side: _read(rows, side, read, ruled) for side in SIDES}
    rows = _completed(rows.withColumns(images), read, ruled)
    rows = rows.withColumns({side: _image(rows[side], shown_columns(ruled, rows, side)) for side in SIDES})
    if rule.rename:
        rows = rows.withColumn("absent", _renamed(rows["absent"], ruled))
    if ruled.key is not None and ruled.hashes:
        rows = hashed(rows.drop("source"), ruled.hashes, ruled.key)
    return rows


def shown_columns(ruled: Transformed, rows: DataFrame, struct: str | None = None) -> dict[str, Column]:
    """Return the target's columns from those of the table, which are fields of `struct`, or columns of the rows.

    Columns that are hashed later have the text to hash.
    """
    from pyspark.sql import functions as f

    masks = {column_key(name): value for name, value in ruled.rule.mask.items()}
    hashes = folded(ruled.rule.hash)
    kinds = {column.name: column.type for column in ruled.source_columns}
    declared = {column.name: column.data_type for column in ruled.table.columns}
    found = {}
    for column in ruled.columns:
        name, key = column.of, column_key(column.of)
        if key in masks:
            found[column.name] = f.lit(masks[key]).cast(spark_type(kinds[name]))
            continue
        value = f.col(identifier(name)) if struct is None else rows[struct].getField(name)
        found[column.name] = hash_text(value, kinds[name], declared[name]) if key in hashes else value
    return found


def _shown(rows: DataFrame, side: str, columns: Sequence[TargetColumn]) -> Column:
    """Return an image as a struct of columns without hidden values."""
    from pyspark.sql.types import VariantType

    if isinstance(rows.schema[side].dataType, VariantType):
        return rows[side].cast(image_type(columns))
    return _image(rows[side], {column.name: rows[side].getField(column.name) for column in columns})


def _read(rows: DataFrame, side: str, columns: Sequence[TargetColumn], ruled: Transformed) -> Column:
    """Return an image as a struct of these columns of the table."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType, VariantType

    image = rows[side]
    if not isinstance(rows.schema[side].dataType, VariantType):
        return _shown(rows, side, columns)
    hidden = folded((*ruled.rule.hash, *ruled.rule.leave_out, *ruled.rule.mask))
    kind = StructType()
    for column in columns:
        secret = column_key(column.name) in hidden
        kind = kind.add(column.name, VariantType() if secret else spark_type(column.type))
    struct = image.cast(kind)
    fields = []
    for column in columns:
        value = struct.getField(column.name)
        if column_key(column.name) in hidden:
            # Spark's own error would show the value.
            tried = value.try_cast(spark_type(column.type))
            wrong = tried.isNull() & value.isNotNull() & ~f.is_variant_null(value)
            message = f"a value of the column {ruled.table.name}.{column.name} is not of its type {column.type}"
            value = f.when(wrong, f.raise_error(f.lit(message)).cast(spark_type(column.type))).otherwise(tried)
        fields.append(value.alias(column.name))
    return f.when(image.isNotNull(), f.struct(*fields))


def _image(image: Column, columns: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as f

    return f.when(image.isNotNull(), f.struct(*(value.alias(name) for name, value in columns.items())))


def _completed(rows: DataFrame, columns: Sequence[TargetColumn], ruled: Transformed) -> DataFrame:
    """Complete the images of inserts with the values that they omit.

    These are constants of the table. If the filter turned an update into an insert, they come from its before image.
    """
    from pyspark.sql import functions as f

    if ruled.left_out is None:
        return rows.drop(_LOGGED)
    lacks = f.coalesce(f.col("absent.after"), f.array().cast("array<string>"))
    insert, logged = f.col("op") == "insert", f.col(_LOGGED) == "insert"
    values = dict(ruled.left_out)

    def whole(column: TargetColumn) -> Column:
        lacking = insert & f.array_contains(lacks, column.name)
        value = f.when(lacking & ~logged, f.col("before").getField(column.name))
        if column.name in values:
            value = value.when(lacking, values[column.name].cast(spark_type(column.type)))
        return value.otherwise(f.col("after").getField(column.name)).alias(column.name)

    after = f.when(f.col("after").isNotNull(), f.struct(*map(whole, columns)))
    absent = f.struct(f.col("absent.before").alias("before"), f.when(~insert, f.col("absent.after")).alias("after"))
    return rows.withColumns({"after": after, "absent": absent}).drop(_LOGGED)


def _renamed(absent: Column, ruled: Transformed) -> Column:
    """Return the names of absent columns in the target."""
    from pyspark.sql import functions as f

    def new(name: Column) -> Column:
        found = name
        for column in ruled.columns:
            if column.source:
                found = f.when(name == column.source, f.lit(column.name)).otherwise(found)
        return found

    return f.struct(*(f.transform(absent.getField(side), new).alias(side) for side in SIDES))


def _fitting(rows: DataFrame, ruled: Transformed) -> DataFrame:
    """Return the rows that the target needs. `op` of a change becomes its effect on a table of matching rows."""
    from pyspark.sql import functions as f

    columns = [column for column in ruled.source_columns if column.name in ruled.filtered]
    rows = rows.withColumns({f"_{side}": _read(rows, side, columns, ruled) for side in SIDES})
    lacks = {side: f.coalesce(f.col(f"absent.{side}"), f.array().cast("array<string>")) for side in SIDES}

    def now(column: TargetColumn) -> Column:
        after, before = (f.col(f"_{side}").getField(column.name) for side in ("after", "before"))
        lacking = f.array_contains(lacks["after"], column.name)
        value = f.when((f.col("op") == "update") & lacking, before)
        if column.name in (ruled.left_out or {}):
            omitted = (ruled.left_out or {})[column.name].cast(spark_type(column.type))
            value = value.when((f.col("op") == "insert") & lacking, omitted)
        return value.otherwise(after).alias(column.name)

    rows = rows.withColumn("_after", f.when(rows["after"].isNotNull(), f.struct(*map(now, columns))))
    for side in SIDES:
        rows = _filter_result(rows, f"_{side}", ruled)
    partial = (f.col("op") == "update") & (f.size(f.array_intersect(lacks["after"], lacks["before"])) > 0)
    complete = f.size(lacks["before"]) == 0
    fits, fitted = f.coalesce(f.col("_after"), f.lit(False)), f.coalesce(f.col("_before"), f.lit(False))
    error = f.concat(
        f.lit(f"the filter of {ruled.table.name} cannot be evaluated, because images of an update lack columns in "),
        f.col("transaction.gtid"),
        f.lit(": set binlog_row_image to FULL or FULL_NODUP on the primary."),
    )
    op = (
        f.when(partial, f.raise_error(error).cast("string"))
        .when(f.col("op").isin("insert", "read"), f.when(fits, f.col("op")))
        .when(f.col("op") == "delete", f.when(fitted | ~complete, f.col("op")))
        .when(fits & (fitted | ~complete), f.col("op"))
        .when(fits, f.lit("insert"))
        .when(fitted | ~complete, f.lit("delete"))
    )
    rows = rows.withColumn("op", op).where(f.col("op").isNotNull()).drop("_before", "_after")
    return rows.withColumn("after", f.when(f.col("op") != "delete", f.col("after")))


def _filter_result(rows: DataFrame, image: str, ruled: Transformed) -> DataFrame:
    """Replace an image by the result of the filter."""
    from pyspark.sql import functions as f

    # The filter names columns and not fields of a struct. All other columns move into one struct, the envelope, so that
    # their names cannot clash with those in the filter.
    envelope = "_envelope"
    while envelope in {spark_column_key(name) for name in ruled.filtered}:
        envelope += "_"
    names = [name for name in rows.columns if name != image]
    kept = rows.select(f.struct(*names).alias(envelope), f.col(image).alias("_image" + envelope))
    fields = [kept["_image" + envelope].getField(name).alias(name) for name in sorted(ruled.filtered)]
    flat = kept.select(envelope, *fields).withColumn(envelope + "_fits", f.expr(ruled.rule.where or "true"))
    return flat.select(f"{envelope}.*", f.col(envelope + "_fits").alias(image))


def folded(names: Iterable[str]) -> frozenset[str]:
    """Return names in the form in which columns are compared."""
    return frozenset(column_key(name) for name in names)
