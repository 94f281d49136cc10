"""The text of a value that is hashed: the output of SELECT, so that equal values of two tables have one hash.

`hash_text` takes a Spark column, its type, and the declared type in the table. It returns an expression whose bytes are
hashed. TIMESTAMP is in UTC. Fractions of a second have no trailing zeros, so that DATETIME and DATETIME(3) are equal.
Bytes are hashed unchanged. Types whose values have several texts, such as FLOAT, are not hashed.
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
"""Declared types whose values can be hashed."""
_PLAIN_SCALE: Final = 6
"""Most digits after the point for which Spark prints small decimals without an exponent."""


def hash_text(value: Column, kind: str, declared: str) -> Column:
    """Return the text of a value; NULL for NULL."""
    from pyspark.sql import functions as f

    if declared == "year":
        return f.lpad(value.cast("string"), 4, "0")
    if kind == "TIMESTAMP":
        # Not by a cast to text, which depends on the session's time zone.
        epoch = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return f.timestamp_add("MICROSECOND", f.unix_micros(value), epoch).cast("string")
    if kind.startswith("DECIMAL"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        if scale > _PLAIN_SCALE:
            return f.replace(f.format_number(value, scale), f.lit(","), f.lit(""))
    return value.cast("string")
