"""Columns of a table and of its copy, matched by name, and cast if one type is wider.

`compared_columns` takes both schemas and returns `ComparedColumn`s, with an expression of one type for each side. If
the copy holds a TIME as text, the texts are compared, because Delta has no intervals. Columns that one side lacks are
an error unless the user leaves them out. Two types are an error, too, if neither holds all values of the other.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

_DECLARED: Final = "mariadb.type"
_KEY: Final = "mariadb.key"
_FRACTION: Final = re.compile(r"time\((\d)\)", re.IGNORECASE)
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_HINT: Final = (
    "Give the columns of the copy the types of docs/types.md, or give a DataFrame that casts them, or ignore them."
)


class ComparedColumn(NamedTuple):
    """Column of both sides.

    Attributes:
        kind: the type of the expressions of both sides.
    """

    name: str
    kind: DataType
    source: Column
    target: Column


def compared_columns(
    table: str, source: StructType, target: StructType, ignore: Collection[str]
) -> tuple[ComparedColumn, ...]:
    """Match the columns by name, without regard to case, in the order of the table.

    Raises:
        SchemaError: a side lacks a column, or the types do not match.
    """
    left_out = {spark_column_key(name) for name in ignore}
    ours = {
        spark_column_key(field.name): field for field in source.fields if spark_column_key(field.name) not in left_out
    }
    theirs = {
        spark_column_key(field.name): field for field in target.fields if spark_column_key(field.name) not in left_out
    }
    for what, here, there in (("the table", ours, theirs), ("the copy", theirs, ours)):
        lacking = [field.name for key, field in there.items() if key not in here]
        if lacking:
            raise SchemaError(
                f"{table}: {what} has no column {', '.join(lacking)}, which the other side has.",
                hint="Name columns to leave out in ignore, or give a DataFrame that has the missing columns.",
            )
    return tuple(_compared(table, field, theirs[key]) for key, field in ours.items())


def key_columns(table: str, source: StructType, given: Collection[str] | None) -> tuple[str, ...]:
    """Return the columns that identify a row: the given columns, or the primary key.

    If there are none, whole rows are compared.

    Raises:
        SchemaError: a given name is not a column.
    """
    if given is None:
        return tuple(field.name for field in source.fields if (field.metadata or {}).get(_KEY))
    names = {spark_column_key(field.name): field.name for field in source.fields}
    unknown = [name for name in given if spark_column_key(name) not in names]
    if unknown:
        raise SchemaError(f"{table} has no column {', '.join(unknown)}, which is given as its key.")
    return tuple(names[spark_column_key(name)] for name in given)


def _compared(table: str, ours: StructField, theirs: StructField) -> ComparedColumn:
    from pyspark.sql import functions as f
    from pyspark.sql import types as spark

    source, target = f.col(identifier(ours.name)), f.col(identifier(theirs.name))
    if _plain(ours.dataType) == _plain(theirs.dataType):
        return ComparedColumn(ours.name, ours.dataType, source, target)
    if isinstance(ours.dataType, spark.DayTimeIntervalType) and isinstance(theirs.dataType, spark.StringType):
        return ComparedColumn(ours.name, spark.StringType(), time_text(source, ours), target)
    if _widens(ours.dataType, theirs.dataType):
        return ComparedColumn(ours.name, theirs.dataType, source.cast(theirs.dataType), target)
    here, there = ours.dataType.simpleString(), theirs.dataType.simpleString()
    raise SchemaError(f"{table}: column {ours.name} is {here}, and {there} in the copy.", hint=_HINT)


def _plain(kind: DataType) -> str:
    """Return the name of a type. All string types have one name, whatever their collation or length."""
    from pyspark.sql import types as spark

    return "string" if isinstance(kind, spark.StringType) else kind.simpleString()


def _widens(narrow: DataType, wide: DataType) -> bool:
    """Return True if each value of one type is a value of the other."""
    from pyspark.sql import types as spark

    one, other = narrow.simpleString(), wide.simpleString()
    if one in _INTEGERS and other in _INTEGERS:
        return _INTEGERS.index(one) < _INTEGERS.index(other)
    if isinstance(narrow, spark.DecimalType) and isinstance(wide, spark.DecimalType):
        return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
    return (one, other) == ("float", "double")


def time_text(column: Column, field: StructField) -> Column:
    """Return a TIME as SELECT prints it, with the fractional digits of its declaration."""
    from pyspark.sql import functions as f

    declared = _FRACTION.search((field.metadata or {}).get(_DECLARED, ""))
    digits = int(declared[1]) if declared else 0

    def part(unit: str) -> Column:
        return f.abs(f.extract(f.lit(unit), column))

    hours = part("DAY") * 24 + part("HOUR")
    seconds = (part("SECOND") * 1_000_000).cast("bigint")
    micros = f.lpad((seconds % 1_000_000).cast("string"), 6, "0")
    texts = [
        f.when(column < f.lit(dt.timedelta(0)), f.lit("-")).otherwise(f.lit("")),
        f.when(hours < 100, f.lpad(hours.cast("string"), 2, "0")).otherwise(hours.cast("string")),
        f.lit(":"),
        f.lpad(part("MINUTE").cast("string"), 2, "0"),
        f.lit(":"),
        f.lpad((seconds / 1_000_000).cast("int").cast("string"), 2, "0"),
        *([f.lit("."), f.substring(micros, 1, digits)] if digits else []),
    ]
    return f.when(column.isNotNull(), f.concat(*texts))


# `value_text` makes an expression that Spark evaluates, the same for both sides. `row_text` writes the length before
# each value, so that different rows have different texts, and marks NULL. Floats differ by each bit, also -0.0;
# decimals have the zeros of their scale; bytes are hexadecimal. A type without such a text is an error.


NULL: Final = "N"
"""NULL in a row's text. Any other value begins with a digit, the first of its length."""


def value_text(column: Column, kind: DataType, name: str) -> Column:
    """Return the text of a value; NULL for NULL.

    Raises:
        SchemaError: values of this type have no text.
    """
    from pyspark.sql import functions as f
    from pyspark.sql import types as spark

    printed = (
        *(spark.StringType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.DecimalType),
        *(spark.FloatType, spark.DoubleType),  # enough digits to distinguish neighbours, and the sign of -0.0
        *(spark.BooleanType, spark.TimestampNTZType, spark.DayTimeIntervalType),
    )
    if isinstance(kind, printed) or _is_vector(kind):
        return column.cast("string")
    made = {
        spark.BinaryType: f.hex,
        spark.DateType: f.unix_date,
        spark.TimestampType: f.unix_micros,  # independent of the session's time zone
        spark.VariantType: f.to_json,
    }
    if type(kind) in made:
        return made[type(kind)](column).cast("string")
    raise SchemaError(
        f"column {name} is of type {kind.simpleString()}, which cannot be compared.",
        hint="Leave it out of both sides, or give a DataFrame with a column of another type (geometry=binary).",
    )


def hashed_value(column: Column, kind: DataType, name: str) -> tuple[Column, Column]:
    """Return a value as xxhash64 takes it, and whether it is NULL, because xxhash64 skips NULLs.

    Raises:
        SchemaError: values of this type cannot be hashed.
    """
    from pyspark.sql import types as spark

    exact = (
        *(spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.DecimalType, spark.BooleanType),
        *(spark.BinaryType, spark.DateType, spark.TimestampType, spark.TimestampNTZType, spark.DayTimeIntervalType),
    )  # not floats: xxhash64 takes -0.0 for 0.0
    return column if isinstance(kind, exact) else value_text(column, kind, name), column.isNull()


def row_text(values: Sequence[Column]) -> Column:
    """Return the text of a row from the texts of its values."""
    from pyspark.sql import functions as f

    parts = [
        f.coalesce(f.concat(f.octet_length(value).cast("string"), f.lit(":"), value), f.lit(NULL)) for value in values
    ]
    return f.concat(*parts)


def shown_text(column: Column, kind: DataType) -> Column:
    """Return a value for people to read: bytes as 0x…, other types as Spark prints them."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as spark

    match kind:
        case spark.BinaryType():
            return f.concat(f.lit("0x"), f.hex(column))
        case spark.VariantType():
            return f.to_json(column)
    return column.cast("string")


def _is_vector(kind: DataType) -> bool:
    from pyspark.sql import types as spark

    return isinstance(kind, spark.ArrayType) and isinstance(kind.elementType, spark.FloatType | spark.DoubleType)
