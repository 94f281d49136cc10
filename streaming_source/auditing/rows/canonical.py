"""The text by which values are compared: two values have the same text if and only if they are the same value.

`value_text` makes an expression that Spark evaluates, the same for both sides. `row_text` writes the length before each
value, so that different rows have different texts, and marks NULL. Floats differ by each bit, also -0.0; decimals have
the zeros of their scale; bytes are hexadecimal. A type without such a text is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

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
