"""The text that a value is compared by: two values have one text if and only if they are the same value.

In: a column's name and its type. Out: an expression of Spark, made in the same way for both sides and evaluated by
Spark itself. A row's text has each value behind its length, so that no two rows meet in one text, and NULL is no text.
Floats are told apart to the bit, also -0.0; decimals have the zeros of their scale; bytes are hexadecimal. Refused: a
type without such a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

NULL: Final = "N"
"""What stands for NULL in a row's text: a value begins with a digit, that of its length."""


def value_text(column: Column, kind: DataType, name: str) -> Column:
    """Return the text of a value; NULL where it is NULL.

    Raises:
        SchemaError: values of this type have no text.
    """
    from pyspark.sql import functions as f
    from pyspark.sql import types as spark

    printed = (
        *(spark.StringType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.DecimalType),
        *(spark.FloatType, spark.DoubleType),  # as many digits as tell it from its neighbours, and the sign of -0.0
        *(spark.BooleanType, spark.TimestampNTZType, spark.DayTimeIntervalType),
    )
    if isinstance(kind, printed) or _is_vector(kind):
        return column.cast("string")
    made = {
        spark.BinaryType: f.hex,
        spark.DateType: f.unix_date,
        spark.TimestampType: f.unix_micros,  # whatever the session's time zone
        spark.VariantType: f.to_json,
    }
    if type(kind) in made:
        return made[type(kind)](column).cast("string")
    raise SchemaError(
        f"column {name} is of type {kind.simpleString()}, by which rows cannot be compared.",
        hint="Leave it out of both sides, or give a DataFrame with a column of another type (geometry=binary).",
    )


def row_text(values: Sequence[Column]) -> Column:
    """Return the text of a row from the texts of its values."""
    from pyspark.sql import functions as f

    parts = [
        f.coalesce(f.concat(f.octet_length(value).cast("string"), f.lit(":"), value), f.lit(NULL)) for value in values
    ]
    return f.concat(*parts)


def shown_text(column: Column, kind: DataType) -> Column:
    """Return a value as people read it: bytes as 0x…, the rest as Spark prints it."""
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
