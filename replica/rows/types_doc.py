"""docs/types.md, made from the type table: `python -m replica.rows.types_doc > docs/types.md`.

A test compares the page with what this makes, so the page cannot fall behind the table.
"""

from __future__ import annotations

import sys

from replica.rows.types import AS_TEXT, TYPES, Kind, TypeRow, arrow_and_spark

_INTRODUCTION = """\
# Types

What a column of MariaDB becomes in Arrow and in Spark. This page is made from the type table that both decoders, the
Arrow schema and the Spark schema read (`replica/rows/types.py`); make it again with
`python -m replica.rows.types_doc > docs/types.md`.

Every column is nullable in Spark, also those that are NOT NULL in MariaDB: partial row images
(`binlog_row_image=MINIMAL`) leave columns out. "Bytes" are those of one value in a row image; `n` is the length of the
value, before which its length stands.
"""

_DECISIONS = """\
## Values that do not fit, and what was decided

**DECIMAL beyond 38 digits.** Spark's DECIMAL and Arrow's decimal128 end at 38 digits, MariaDB's at 65. A column
declared with more than 38 digits is a STRING: the exact digits, with the zeros of its scale, as SELECT prints them. The
declaration decides, not the value, so a column has one type for all rows. Rounding or an error on the first large value
would lose data or stop a stream that ran for months. `CAST(c AS DECIMAL(38, 10))` in Spark takes what fits.

**TIME.** MariaDB's TIME is a length of time as much as a time of day: it is signed and reaches 838:59:59.999999.
Spark's TIME ends at 24 hours, so TIME becomes INTERVAL DAY TO SECOND, which holds every value exactly, the negative and
those beyond a day. Midnight plus the interval is the time of day. VARIANT has no interval: there a TIME is text as
SELECT prints it, such as `-838:59:59.999999`, with the digits of its declaration.

**Dates that no calendar has.** MariaDB stores `0000-00-00`, dates with a month or day of zero, dates in the year 0000,
and under `ALLOW_INVALID_DATES` also 31 February. Spark's DATE and TIMESTAMP cannot hold them. The option `invalidDates`
decides for DATE, DATETIME and TIMESTAMP columns:

| `invalidDates` | what happens |
| --- | --- |
| `null` (default) | the value is NULL. It can no longer be told from a real NULL |
| `error` | the query stops with an error that names the table, the column and the offset |
| `text` | all DATE, DATETIME and TIMESTAMP columns are STRING, as SELECT prints them, TIMESTAMP in UTC |

The default keeps a stream running and typed; whoever has such dates and needs them chooses `text`.

**DATETIME and TIMESTAMP.** A DATETIME has no time zone: it is TIMESTAMP_NTZ, the same digits as in MariaDB. A TIMESTAMP
is a point in time, logged in UTC whatever the session's time zone was: it is TIMESTAMP. Both keep microseconds.

**Unsigned integers** take the next wider type, because Spark has none. BIGINT UNSIGNED and BIT(64) are DECIMAL(20,0).

**YEAR** is an INT; the year 0000 is 0.

## Text

All of MariaDB's character sets are decoded, as the server itself converts them: latin1 is cp1252 with the five bytes
that cp1252 leaves undefined passed through. Bytes that are no character of a column's set (a server keeps such bytes
if a client sends them) become U+FFFD; SELECT shows `?` for them. utf8mb3 and utf8mb4 are passed on as they are, with
the lone surrogates that the server accepts although they are no UTF-8. CHAR comes without its pad spaces, as SELECT
gives it; VARCHAR keeps trailing spaces. ENUM and SET are their labels. VARIANT does not take columns in other
multi-byte sets (gbk, sjis, utf16 and so on) yet: a clear error says so, and typed queries read them.

## Where a column's definition comes from

With `binlog_row_metadata=FULL` each table map brings names, signedness, character sets, labels and keys of the rows
that follow it: this is right for old rows too. With NO_LOG (the default) or MINIMAL the connector reads
information_schema, which knows how the table looks today. Number, types, widths, digits, signs and character sets of
the columns are compared with the table map, and a difference is an error, never a guess. UUID, INET4 and INET6 are
logged as BINARY; only the catalog tells them apart. DATETIME, TIMESTAMP and TIME in the format of servers before 10.1.2
(`mysql56_temporal_format=OFF`) are decoded if they have no fractional digits; the binlog does not describe others.

## Columns that SELECT does not show

Row images hold generated and INVISIBLE columns, `row_start` and `row_end` of system-versioned tables, and
`DB_ROW_HASH_1`, `DB_ROW_HASH_2`, … of tables with a UNIQUE key too long for an index. Typed queries put out the columns
that information_schema lists; VARIANT holds all of the row image.
"""

_VARIANT = {
    Kind.UINT64: "integer, decimal beyond BIGINT",
    Kind.BIT64: "integer, decimal beyond BIGINT",
    Kind.TIME: "text",
    Kind.OLD_TIME: "text",
}
_VARIANT_OF_SPARK = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    "STRING": "text",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}


def page() -> str:
    """The whole page."""
    lines = [
        _INTRODUCTION,
        "| MariaDB | bytes | Arrow | Spark | in VARIANT | remarks |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in TYPES:
        lines.append(_line(row, row.declared, row.kind))
        if row.unsigned_kind is not None:
            lines.append(_line(row, f"{row.declared.split(',')[0]} UNSIGNED", row.unsigned_kind))
    return "\n".join([*lines, "", _DECISIONS])


def _line(row: TypeRow, declared: str, kind: Kind) -> str:
    if kind == Kind.OPAQUE:
        arrow, spark, variant = "-", "-", "-"
    elif kind == Kind.DECIMAL:
        arrow, spark, variant = "decimal128(p, s)", "DECIMAL(p,s)", "decimal"
    else:
        arrow_type, spark = arrow_and_spark(kind)
        arrow, variant = str(arrow_type), _VARIANT.get(kind) or _VARIANT_OF_SPARK.get(spark, spark.lower())
    if kind in AS_TEXT:
        spark += "; STRING under `text`"
    return f"| {declared} | {row.wire_bytes} | {arrow} | {spark} | {variant} | {row.remarks} |"


if __name__ == "__main__":
    sys.stdout.write(page())
