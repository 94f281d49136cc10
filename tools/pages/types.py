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

The types of MariaDB's columns in Arrow, in Spark, and in the lines of `mariadb-replica dump --json`. This page is made
from the registry of types (`replica/rows/types/`): `python -m tools.pages.types > docs/types.md`.

* Every column is nullable in Spark, because partial row images (`binlog_row_image=MINIMAL`) omit columns.
* "Bytes" is the size of a value in a row image. The length of a value comes before it, and `n` is that length.
* In JSON, NULL is `null`, and a column that is not in the image has no member. Temporals are text, as SELECT prints
  them with `time_zone='+00:00'`.
"""

_DECISIONS = """\
## Values that do not fit

**DECIMAL beyond 38 digits** is STRING, because Spark and Arrow end at 38 digits and MariaDB at 65. The text has all
digits, with the zeros of the scale. The declaration decides, not the value, so all rows have one type.
`CAST(c AS DECIMAL(38, 10))` in Spark takes what fits.

**TIME** is signed and reaches 838:59:59.999999, but Spark's TIME ends at 24 hours. Therefore it is an INTERVAL DAY TO
SECOND, which holds every value exactly. Midnight plus the interval is the time of day. VARIANT has no intervals, so
TIME is text there, such as `-838:59:59.999999`.

**Invalid dates.** MariaDB stores `0000-00-00`, months and days of zero, the year 0000, and with `ALLOW_INVALID_DATES`
also 31 February. Spark cannot hold them in DATE, DATETIME and TIMESTAMP columns:

| `invalidDates` | effect |
| --- | --- |
| `null` (default) | the value is NULL, like a real NULL |
| `error` | the query stops with an error that names the table, the column and the offset |
| `text` | all DATE, DATETIME and TIMESTAMP columns are STRING, as SELECT prints them, TIMESTAMP in UTC |

**GEOMETRY** is logged as it is stored: the SRID, then WKB. With `geometry=binary` (default) you get these bytes. With
`spark` you get a column of Spark's `GEOMETRY(ANY)`, because one column may have several SRIDs; in Arrow it is a struct
of `srid` and `wkb`. The empty value that INSERT IGNORE writes into a NOT NULL column is NULL with `spark`, and no bytes
with `binary`. In VARIANT, a geometry is the bytes.

**FLOAT(M,D) and DOUBLE(M,D)** are rounded to D digits after the point, as SELECT shows them. The server may store more
digits (after an ALTER that adds (M,D)), and computes with them. Values are not rounded if the definition is unknown
(files without definitions, a relay log without a server), if D is over 22, and in `dump` and `tail`.

## Text

Every character set of SHOW CHARACTER SET (10.5 to 11.8) is decoded as the server converts it. For example, latin1 is
cp1252, and its five undefined bytes pass through. Some bytes are no character of the column's set: surrogates in
utf8mb3, undefined codes, and bytes of an earlier character set.

| `invalidText` | effect |
| --- | --- |
| `replace` (default) | each such byte becomes U+FFFD, in UTF-8 each damaged sequence. SELECT shows `?` |
| `error` | the query stops with an error that names the table, the column and the offset |

Strings are always valid UTF-8. In a multi-byte set, the number of U+FFFD may differ from the number of the server's
`?`. Invalid bytes in labels of ENUM and SET are always replaced. Labels of a binary ENUM or SET (`DEFAULT
CHARSET=binary`) are read as UTF-8. If two labels become equal, the column is refused.

## Where a column's definition comes from

With `binlog_row_metadata=FULL`, the binlog has names, signs, character sets, labels and keys, also for old rows.
Otherwise the connector reads information_schema, which has the current definition. It compares number, types, widths,
digits, signs and character sets of the columns with the binlog, and a difference is an error.

* Without the catalog or the DDL, a VECTOR is BINARY with four bytes a component, little endian.
* If information_schema prints `?` in a label, the connector asks for the label itself.
* The temporal types of servers before 10.1.2 (`mysql56_temporal_format=OFF`) are decoded only without fractional
  digits.

## Hidden and missing columns

| column | in rows |
| --- | --- |
| generated, INVISIBLE | like other columns. MariaDB 11.8.9 omits generated ones in updates and deletes: \
[spark.md](spark.md#absent-is-not-null) |
| `row_start`, `row_end` of a table WITH SYSTEM VERSIONING | the last columns. `history` marks closed versions |
| `DB_ROW_HASH_1`, … of a UNIQUE key that is too long for an index | omitted |
| all columns of a table versioned by transaction (BIGINT periods) | never logged as rows |
| missing in a partial image | NULL if typed, and `absent` has its name; no field in VARIANT |
| cannot be decoded: internal types of MySQL, unknown character sets, old temporals with fractional digits | an error \
if you select it. VARIANT selects all columns |
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
