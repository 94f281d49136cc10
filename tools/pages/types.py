"""Generator of docs/types.md from the registry of types: `python -m tools.pages.types > docs/types.md`.

A test compares the page with the output of this module, so that the page cannot become outdated.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from replica.rows.types.types import KINDS, TYPES

if TYPE_CHECKING:
    from replica.protocol.constants import ColumnType
    from replica.rows.types.kinds import Kind

_INTRODUCTION = """\
# Types

What a column of MariaDB becomes in Arrow, in Spark, and in the lines of `mariadb-replica dump --json`. This page is
made from the registry of types that both decoders, the Arrow schema, the Spark schema and the DDL parser read (a file a
family under `replica/rows/types/`); make it again with `python -m tools.pages.types > docs/types.md`.

Every column is nullable in Spark, also those that are NOT NULL in MariaDB: partial row images
(`binlog_row_image=MINIMAL`) leave columns out. "Bytes" are those of one value in a row image; `n` is the length of the
value, before which its length stands. In JSON a column that is not in the image has no member, NULL is `null`, and
temporals are text as SELECT prints them under `time_zone='+00:00'`.
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

The default keeps a stream running and typed; users who have such dates and need them choose `text`.

**DATETIME and TIMESTAMP.** A DATETIME has no time zone: it is TIMESTAMP_NTZ, the same digits as in MariaDB. A TIMESTAMP
is a point in time, logged in UTC whatever the session's time zone was: it is TIMESTAMP. Both keep microseconds.

**GEOMETRY** is logged as it is stored: the SRID, then WKB. The option `geometry` decides: `binary` (default) hands on
those bytes, `spark` makes a column of Spark's type `GEOMETRY(ANY)` (in Arrow a struct of `srid` and `wkb`). The type
never promises one SRID, because values of a MariaDB column may have different ones. The empty value that INSERT IGNORE
leaves in a NOT NULL column is NULL there, and no bytes under `binary`. VARIANT has no geometry: there it is the bytes.

**VECTOR** is an array of FLOAT. The binlog calls it VARBINARY: without the table's definition it is BINARY, four bytes
a component, little endian.

**COMPRESSED columns** are what they hold. Whether the server stored a value compressed cannot be seen.

**FLOAT(M,D) and DOUBLE(M,D)** are rounded to D digits after the point, as SELECT shows them. What is stored may have
more: an ALTER that adds (M,D) leaves the digits that there were, and the server compares and computes with them.
Values are as they are stored where the definition is not known, because the table map does not tell D (files without
definitions, a relay log without a server), where D is beyond 22, and in `dump` and `tail`.

**Unsigned integers** take the next wider type, because Spark has none. BIGINT UNSIGNED and BIT(64) are DECIMAL(20,0).

**YEAR** is an INT; the year 0000 is 0.

## Text

Every character set that SHOW CHARACTER SET lists (10.5 to 11.8, with the collations of uca1400) is decoded as the
server itself converts it: latin1 is cp1252 with the five bytes that cp1252 leaves undefined passed through. CHAR comes
without its pad spaces, as SELECT gives it; VARCHAR keeps trailing spaces. ENUM and SET are their labels.

A column can hold bytes that are no character of its set: surrogates, which the server takes for utf8mb3, codes that a
set does not define, what was there when a table's character set was changed underneath. The option `invalidText`
decides:

| `invalidText` | what happens |
| --- | --- |
| `replace` (default) | U+FFFD stands for each of them, in UTF-8 for each damaged sequence; SELECT shows `?` |
| `error` | the query stops with an error that names the table, the column and the offset |

Strings are valid UTF-8 under both, so that nothing stumbles over them later. Labels of ENUM and SET are replaced under
both: they are part of the definition, not of a row. The labels of a binary ENUM or SET (`DEFAULT CHARSET=binary` makes
them so) are read as UTF-8, as the statement that declared them was written, and are STRING as those of others; where
two of them would become the same text, the column is refused. Which bytes of a damaged text in a multi-byte set become
one U+FFFD is not always what the server's `?` stand for.

## Where a column's definition comes from

With `binlog_row_metadata=FULL` each table map brings names, signedness, character sets, labels and keys of the rows
that follow it: this is right for old rows too. With NO_LOG (the default) or MINIMAL the connector reads
information_schema, which knows how the table looks today. Number, types, widths, digits, signs and character sets of
the columns are compared with the table map, and a difference is an error, never a guess. UUID, INET4 and INET6 are
logged as BINARY and VECTOR as VARBINARY; only the catalog tells them apart. Where information_schema prints `?` for a
character beyond U+FFFF or a byte that is no UTF-8 in a label of ENUM or SET, the connector asks for the label itself.
DATETIME, TIMESTAMP and TIME in the format of servers before 10.1.2 (`mysql56_temporal_format=OFF`) are decoded if they
have no fractional digits; the binlog does not describe others.

## Columns that SELECT does not show, and columns that are not there

Row images hold generated and INVISIBLE columns: they are columns like others. (MariaDB 11.8.9 leaves generated ones out
of updates and deletes: see [spark.md](spark.md#absent-is-not-null).) `row_start` and `row_end` of a table WITH
SYSTEM VERSIONING are put out too, as last columns, although information_schema does not list them; whether a row is a
closed version of the past is told beside the row. `DB_ROW_HASH_1`, `DB_ROW_HASH_2`, … of tables with a UNIQUE key too
long for an index are put out nowhere. Tables versioned by transaction (BIGINT periods) are never logged as rows.

Which columns a partial image leaves out is told beside the row as well, because a typed column is NULL there. In
VARIANT such a column has no field.

A column that cannot be decoded (MySQL's internal types, old temporal formats with fractional digits, character sets
that no one knows) stops only those who ask for it. VARIANT asks for all.
"""


def page() -> str:
    """Write the whole page."""
    lines = [
        _INTRODUCTION,
        "| MariaDB | wire type | bytes | Arrow | Spark | in VARIANT | in JSON | remarks |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in TYPES:
        told = entry.binlog
        lines.append(_line(entry.declared, told.codes, told.bytes, entry.kind, entry.remarks))
        if entry.unsigned is not None:
            declared = f"{entry.declared.split(',')[0]} UNSIGNED"
            lines.append(_line(declared, told.codes, told.bytes, entry.unsigned, entry.remarks))
        if entry.wide is not None:
            wide = entry.wide
            lines.append(_line(wide.declared, told.codes, wide.bytes, wide.kind, wide.remarks))
    return "\n".join([*lines, "", _DECISIONS])


def _line(declared: str, codes: tuple[ColumnType, ...], size: str, kind: Kind, remarks: str) -> str:
    entry = KINDS[kind]
    fixed = isinstance(entry.arrow, pa.DataType)
    arrow, spark = str(entry.arrow) if fixed else "decimal128(p, s)", entry.spark.format(p="p", s="s")
    if entry.as_text is not None:
        spark += "; STRING under `text`"
    if entry.as_stored is not None:
        stored = KINDS[entry.as_stored]
        arrow, spark = f"{stored.arrow}; {arrow} under `spark`", f"{stored.spark}; {spark} under `spark`"
    wire = ", ".join(str(int(code)) for code in codes)
    return (
        f"| {declared} | {wire} | {size} | {arrow} | {spark} | {entry.variant.value} | {entry.json.value} | {remarks} |"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
