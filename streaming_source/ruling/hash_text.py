"""The text of a value that is hashed: what SELECT prints of it, so that equal values of two tables have one hash.

In: a column of Spark, its type, and the type that the table declares. Out: an expression whose bytes are hashed.
TIMESTAMP is in UTC; parts of a second have no zeros at their end, so that DATETIME and DATETIME(3) meet. Bytes are
hashed as they are. Types whose values have more than one text, FLOAT for one, are not hashed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

HASHED: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "date", "datetime", "timestamp"}
    | {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid", "inet4", "inet6"}
    | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
"""The declared types whose values can be hashed."""
_PLAIN_SCALE: Final = 6
"""Spark prints decimals with more digits behind the point with an exponent where they are small."""


def hash_text(value: Column, kind: str, declared: str) -> Column:
    """Return the text of a value; NULL where it is NULL."""
    from pyspark.sql import functions as f

    if declared == "year":
        return f.lpad(value.cast("string"), 4, "0")
    if kind == "TIMESTAMP":
        # Not by its text: that would be in the session's time zone.
        epoch = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return f.timestamp_add("MICROSECOND", f.unix_micros(value), epoch).cast("string")
    if kind.startswith("DECIMAL"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        if scale > _PLAIN_SCALE:
            return f.replace(f.format_number(value, scale), f.lit(","), f.lit(""))
    return value.cast("string")
