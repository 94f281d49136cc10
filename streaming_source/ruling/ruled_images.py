"""The row images of a batch as the rule of their table wants them in the target.

In: envelope rows of one table, with images that are VARIANT or STRUCTs of all its columns, the table's definition and
rule. Out: the same rows with images as structs of the target's columns: without what is left out, with constants for
what is masked, hashes, and new names; and only rows that fit the filter. A row that comes to fit is an insert, one that
fits no more a delete.

All of it happens to each row by itself, before rows are sent to where others of their key are: what is hidden is in no
file of a shuffle. A value that is not of its type makes the batch fail with its column's name alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.schema.text.naming import column_key
from streaming_source.queries.sql_text import identifier
from streaming_source.ruling.hash_text import hash_text
from streaming_source.ruling.keyed_hash import SIDES, hashed
from streaming_source.ruling.target_columns import image_type, target_columns
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.spark_names import spark_column_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema
    from streaming_source.ruling.hash_key import HashKey
    from streaming_source.ruling.table_rules import TableRule
    from streaming_source.ruling.target_columns import TargetColumn

_LOGGED = "_logged"
"""What a row was before the filter: its `op` in the binlog."""


class Ruled(NamedTuple):
    """A table with its rule. `filtered`: the columns that the rule's filter names; `left_out`: the values of columns
    that images of inserts leave out; None where no image lacks columns, or none is to be made whole.
    """

    table: TableSchema
    policy: ValuePolicy
    rule: TableRule
    key: HashKey | None
    filtered: frozenset[str] = frozenset()
    left_out: Mapping[str, Column] | None = None

    @property
    def columns(self) -> tuple[TargetColumn, ...]:
        """The columns of the target."""
        return target_columns(self.table, self.policy, self.rule)

    @property
    def source_columns(self) -> tuple[TargetColumn, ...]:
        """The columns that the target would have without the rule."""
        return target_columns(self.table, self.policy)

    @property
    def read_columns(self) -> tuple[TargetColumn, ...]:
        """The columns of the table that the rule needs the values of."""
        unseen = folded((*self.rule.leave_out, *self.rule.mask)) - folded(self.filtered)
        return tuple(column for column in self.source_columns if column_key(column.name) not in unseen)

    @property
    def hashes(self) -> tuple[str, ...]:
        """The columns of the target that hold hashes."""
        wanted = folded(self.rule.hash)
        return tuple(column.name for column in self.columns if column_key(column.of) in wanted)


def target_images(rows: DataFrame, ruled: Ruled) -> DataFrame:
    """Return rows with images of the target's columns."""
    rule = ruled.rule
    rows = rows.withColumn(_LOGGED, rows["op"])
    if rule.where is not None:
        rows = _fitting(rows, ruled)
    if not rule.named:
        images = {side: _shown(rows, side, ruled.columns) for side in SIDES}
        return _whole(rows.withColumns(images), ruled.columns, ruled)
    unseen = folded((*rule.leave_out, *rule.mask))
    read = [column for column in ruled.source_columns if column_key(column.name) not in unseen]
    images = {side: _read(rows, side, read, ruled) for side in SIDES}
    rows = _whole(rows.withColumns(images), read, ruled)
    rows = rows.withColumns({side: _image(rows[side], shown_columns(ruled, rows, side)) for side in SIDES})
    if rule.rename:
        rows = rows.withColumn("absent", _renamed(rows["absent"], ruled))
    if ruled.key is not None and ruled.hashes:
        rows = hashed(rows.drop("source"), ruled.hashes, ruled.key)
    return rows


def shown_columns(ruled: Ruled, rows: DataFrame, struct: str | None = None) -> dict[str, Column]:
    """Return the target's columns from those of the table, which are fields of a struct or the rows' own. What is to
    be hashed is the text of it yet.
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
    """Return an image as a struct of columns that hide nothing."""
    from pyspark.sql.types import VariantType

    if isinstance(rows.schema[side].dataType, VariantType):
        return rows[side].cast(image_type(columns))
    return _image(rows[side], {column.name: rows[side].getField(column.name) for column in columns})


def _read(rows: DataFrame, side: str, columns: Sequence[TargetColumn], ruled: Ruled) -> Column:
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
            told = f"a value of the column {ruled.table.name}.{column.name} is not of its type {column.type}"
            value = f.when(wrong, f.raise_error(f.lit(told)).cast(spark_type(column.type))).otherwise(tried)
        fields.append(value.alias(column.name))
    return f.when(image.isNotNull(), f.struct(*fields))


def _image(image: Column, columns: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as f

    return f.when(image.isNotNull(), f.struct(*(value.alias(name) for name, value in columns.items())))


def _whole(rows: DataFrame, columns: Sequence[TargetColumn], ruled: Ruled) -> DataFrame:
    """Put into images of inserts what they leave out: constants of the table, and for an update that a filter makes an
    insert of, what its image before has.
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


def _renamed(absent: Column, ruled: Ruled) -> Column:
    """Return the names of absent columns as the target has them."""
    from pyspark.sql import functions as f

    def new(name: Column) -> Column:
        found = name
        for column in ruled.columns:
            if column.source:
                found = f.when(name == column.source, f.lit(column.name)).otherwise(found)
        return found

    return f.struct(*(f.transform(absent.getField(side), new).alias(side) for side in SIDES))


def _fitting(rows: DataFrame, ruled: Ruled) -> DataFrame:
    """Return the rows that the target needs; changes become what they are to a table of rows that fit."""
    from pyspark.sql import functions as f

    columns = [column for column in ruled.source_columns if column.name in ruled.filtered]
    rows = rows.withColumns({f"_{side}": _read(rows, side, columns, ruled) for side in SIDES})
    lacks = {side: f.coalesce(f.col(f"absent.{side}"), f.array().cast("array<string>")) for side in SIDES}

    def now(column: TargetColumn) -> Column:
        after, before = (f.col(f"_{side}").getField(column.name) for side in ("after", "before"))
        lacking = f.array_contains(lacks["after"], column.name)
        value = f.when((f.col("op") == "update") & lacking, before)
        if column.name in (ruled.left_out or {}):
            told = (ruled.left_out or {})[column.name].cast(spark_type(column.type))
            value = value.when((f.col("op") == "insert") & lacking, told)
        return value.otherwise(after).alias(column.name)

    rows = rows.withColumn("_after", f.when(rows["after"].isNotNull(), f.struct(*map(now, columns))))
    for side in SIDES:
        rows = _told(rows, f"_{side}", ruled)
    partial = (f.col("op") == "update") & (f.size(f.array_intersect(lacks["after"], lacks["before"])) > 0)
    whole = f.size(lacks["before"]) == 0
    fits, fitted = f.coalesce(f.col("_after"), f.lit(False)), f.coalesce(f.col("_before"), f.lit(False))
    error = f.concat(
        f.lit(f"the filter of {ruled.table.name} cannot be asked, as the images of an update lack columns in "),
        f.col("transaction.gtid"),
        f.lit(": set binlog_row_image to FULL or FULL_NODUP on the primary."),
    )
    op = (
        f.when(partial, f.raise_error(error).cast("string"))
        .when(f.col("op").isin("insert", "read"), f.when(fits, f.col("op")))
        .when(f.col("op") == "delete", f.when(fitted | ~whole, f.col("op")))
        .when(fits & (fitted | ~whole), f.col("op"))
        .when(fits, f.lit("insert"))
        .when(fitted | ~whole, f.lit("delete"))
    )
    rows = rows.withColumn("op", op).where(f.col("op").isNotNull()).drop("_before", "_after")
    return rows.withColumn("after", f.when(f.col("op") != "delete", f.col("after")))


def _told(rows: DataFrame, image: str, ruled: Ruled) -> DataFrame:
    """Put the filter's answer in the place of an image."""
    from pyspark.sql import functions as f

    # The filter names columns, and no fields of a struct: an envelope keeps their names apart.
    envelope = "_envelope"
    while envelope in {spark_column_key(name) for name in ruled.filtered}:
        envelope += "_"
    names = [name for name in rows.columns if name != image]
    kept = rows.select(f.struct(*names).alias(envelope), f.col(image).alias("_image" + envelope))
    fields = [kept["_image" + envelope].getField(name).alias(name) for name in sorted(ruled.filtered)]
    flat = kept.select(envelope, *fields).withColumn(envelope + "_fits", f.expr(ruled.rule.where or "true"))
    return flat.select(f"{envelope}.*", f.col(envelope + "_fits").alias(image))


def folded(names: Iterable[str]) -> frozenset[str]:
    """Return names as columns are compared."""
    return frozenset(column_key(name) for name in names)
