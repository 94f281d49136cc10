"""Catalog reader: queries on information_schema as text, and the conversion of their rows to `TableSchema`.

`columns_query` and `keys_query` make the SQL for a selection of tables; `read_catalog` converts the rows of both. This
module sends nothing. Views are omitted, because a binlog has no rows of views. System databases are omitted unless they
are selected by name. A system-versioned table gets the columns of the row period, which information_schema hides. An
account sees only tables on which it has a privilege: the caller must check for missing tables.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from replica.errors import SchemaError
from replica.protocol.charset import charset_named
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema
from replica.schema.text.naming import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SYSTEM_DATABASES = ("information_schema", "mysql", "performance_schema", "sys")

# The LIMIT prevents the server from merging the derived table. The merged query takes 20 s for 4 000 tables, because
# the server searches all tables for every column. With LIMIT, the server builds an index (derived_with_keys) and takes
# half a second (10.5, 10.11, 11.8). The collation of the index treats t and T, cafe and café as equal; BINARY
# distinguishes them.
_COLUMNS = """\
SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.IS_NULLABLE, c.CHARACTER_SET_NAME,
       c.COLLATION_NAME, c.CHARACTER_OCTET_LENGTH, c.NUMERIC_PRECISION, c.NUMERIC_SCALE, c.DATETIME_PRECISION,
       c.COLUMN_COMMENT, c.GENERATION_EXPRESSION, t.TABLE_TYPE, t.TABLE_COLLATION
  FROM information_schema.COLUMNS c
  JOIN (SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COLLATION
          FROM information_schema.TABLES c
         WHERE TABLE_TYPE NOT LIKE '%%VIEW' AND {condition}
         LIMIT 18446744073709551615) t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
   AND BINARY t.TABLE_SCHEMA = BINARY c.TABLE_SCHEMA AND BINARY t.TABLE_NAME = BINARY c.TABLE_NAME
 WHERE {condition}
 ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION"""

# STATISTICS, because KEY_COLUMN_USAGE also lists the hidden row_end of a versioned table.
_KEYS = """\
SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.INDEX_NAME, c.COLUMN_NAME
  FROM information_schema.STATISTICS c
 WHERE (c.INDEX_NAME = 'PRIMARY' OR c.INDEX_TYPE = 'HASH') AND {condition}
 ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.SEQ_IN_INDEX"""

# A label as the server quotes it: '' for a quote, a backslash before a character that SQL requires escaped.
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'(,|$)", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_PERIODS: dict[str | None, Literal["start", "end"]] = {"ROW START": "start", "ROW END": "end"}
_CONTROL = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}

Selection = tuple[str, str | None]
"""A database and a table; the table is None for all tables of the database."""


def columns_query(selection: Sequence[Selection] = ()) -> tuple[str, tuple[str, ...]]:
    """Return SQL and arguments (%s) that list the columns of the selected tables.

    Without a selection, the SQL lists the columns of all user tables.
    """
    condition, arguments = _condition(selection)
    return _COLUMNS.format(condition=condition), arguments * 2


def keys_query(selection: Sequence[Selection] = ()) -> tuple[str, tuple[str, ...]]:
    """Return SQL and arguments (%s) that list the columns of primary keys, in key order, and of keys kept as hashes."""
    condition, arguments = _condition(selection)
    return _KEYS.format(condition=condition), arguments


def read_catalog(columns: Iterable[Sequence[Any]], keys: Iterable[Sequence[Any]]) -> dict[tuple[str, str], TableSchema]:
    """Return the rows of both queries as tables, by (database, table)."""
    found: dict[tuple[str, str], list[ColumnSchema]] = {}
    versioned, collations = set(), {}
    for database, table, *row, table_type, collation in columns:
        found.setdefault((database, table), []).append(_column(row))
        collations[database, table] = collation
        if table_type == "SYSTEM VERSIONED":
            versioned.add((database, table))
    key_columns: dict[tuple[str, str], dict[str, list[str]]] = {}
    for database, table, index, column in keys:
        key_columns.setdefault((database, table), {}).setdefault(index, []).append(column)
    return {
        name: replace(
            _table(name, parts, key_columns.get(name, {}), versioned=name in versioned), collation=collations[name]
        )
        for name, parts in found.items()
    }


def parse_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of an ENUM or SET from the server's declaration: enum('a','it''s','x,y')."""
    inner = column_type[column_type.index("(") + 1 : column_type.rindex(")")]
    labels, at = [], 0
    while at < len(inner):
        match = _LABEL.match(inner, at)
        if match is None:
            raise SchemaError(f"The labels of {column_type} are not written as the server writes them.")
        labels.append(_ESCAPE.sub(lambda m: _CONTROL.get(m[1], m[1]) if m[1] else "'", match[1]))
        at = match.end()
    return tuple(labels)


def _condition(selection: Sequence[Selection]) -> tuple[str, tuple[str, ...]]:
    if not selection:
        return f"c.TABLE_SCHEMA NOT IN ({', '.join(['%s'] * len(SYSTEM_DATABASES))})", SYSTEM_DATABASES
    terms = ["c.TABLE_SCHEMA = %s" + (" AND c.TABLE_NAME = %s" if table else "") for _, table in selection]
    arguments = tuple(name for pair in selection for name in pair if name)
    return f"({' OR '.join(f'({term})' for term in terms)})", arguments


def _column(row: Sequence[Any]) -> ColumnSchema:
    name, data_type, column_type, nullable, charset, collation, octets, precision, scale, fsp, comment, generated = row
    data_type = data_type.lower()
    labelled = data_type in ("enum", "set")
    counted = data_type in ("decimal", "bit")
    return ColumnSchema(
        name=name,
        data_type=data_type,
        column_type=column_type,
        nullable=nullable == "YES",
        unsigned=not labelled and " unsigned" in column_type,
        charset=charset,
        collation=collation,
        labels=parse_labels(column_type) if labelled else None,
        octets=None if octets is None or labelled else int(octets),
        precision=int(precision) if counted else None,
        scale=int(scale) if data_type == "decimal" else None,
        fsp=None if fsp is None else int(fsp),
        period=_PERIODS.get(generated),
        computed=bool(generated) and generated not in _PERIODS,
        comment=comment,
    )


def _table(
    name: tuple[str, str], columns: list[ColumnSchema], keys: dict[str, list[str]], *, versioned: bool
) -> TableSchema:
    positions = {column.name: index for index, column in enumerate(columns)}
    primary_key = keys.pop("PRIMARY", [])
    if versioned and not any(column.period for column in columns):
        columns = [*columns, *ROW_PERIOD]
    return TableSchema(
        database=name[0],
        table=name[1],
        columns=tuple(replace(column, key=column.name in primary_key) for column in columns),
        primary_key=tuple(positions[key] for key in primary_key),
        versioned=versioned,
        hash_keys=len(keys),
    )


# The server keeps column declarations in the three-byte UTF-8 of its identifiers. So information_schema and SHOW CREATE
# TABLE show a character beyond U+FFFF in a label as '?'. In a binary column, they show a '?' for each byte of such a
# character and for each invalid byte. A variable of the column's type shows the real label. `doubtful_labels` returns
# the columns to query: those with a '?' in a label, if their character set has such characters. Invalid bytes become
# U+FFFD.


_LOST = "?"
_BINARY = "binary"
_BYTES_BEYOND_BMP = 4  # maximal bytes of a character, in the character sets with characters beyond U+FFFF


class DoubtfulLabels(NamedTuple):
    """Column whose labels may be wrong: its index in the table, and the indexes of the doubtful labels."""

    schema: TableSchema
    column: int
    labels: tuple[int, ...]

    def query(self) -> str:
        """Return a statement whose result is one row: the labels in hexadecimal UTF-8. It needs SELECT on the table."""
        column = self.schema.columns[self.column]
        place = (self.schema.database, self.schema.table, column.name)
        names = ".".join(map(quoted, place))
        values = [index + 1 if column.data_type == "enum" else 1 << index for index in self.labels]
        steps = (f"DECLARE v{i} TYPE OF {names} DEFAULT {value};" for i, value in enumerate(values))
        text = "{}" if column.charset == _BINARY else "CONVERT({} USING utf8mb4)"
        shown = ", ".join(f"HEX({text.format(f'v{i}')})" for i in range(len(values)))
        return f"BEGIN NOT ATOMIC {' '.join(steps)} SELECT {shown}; END"

    def answered(self, rows: Iterable[Sequence[object]]) -> ColumnSchema:
        """Return the column with the labels of the server's answer."""
        column = self.schema.columns[self.column]
        row = next(iter(rows), ())
        if column.labels is None or len(row) != len(self.labels):
            raise SchemaError(
                f"The server does not report the labels of {column.name} in {self.schema.name}.",
                hint="Set binlog_row_metadata=FULL on the primary, so that the binlog contains the column definitions.",
            )
        labels = list(column.labels)
        for index, text in zip(self.labels, row, strict=True):
            labels[index] = bytes.fromhex(str(text)).decode("utf-8", "replace")
        return replace(column, labels=tuple(labels))


def doubtful_labels(schema: TableSchema) -> Iterator[DoubtfulLabels]:
    """Yield the columns of a table whose labels must be queried."""
    for number, column in enumerate(schema.columns):
        labels = tuple(index for index, label in enumerate(column.labels or ()) if _LOST in label)
        if labels and column.charset and _may_have_lost(column.charset):
            yield DoubtfulLabels(schema, number, labels)


def _may_have_lost(charset: str) -> bool:
    return charset == _BINARY or charset_named(charset).max_bytes >= _BYTES_BEYOND_BMP


# With FULL, 11.8.9 omits virtual and stored generated columns from the images of UPDATE and DELETE, even if their value
# changes. The image of an INSERT has them. Index, engine (InnoDB, MyISAM) and key make no difference. 10.5.29, 10.11.19
# and 11.8.6 log generated columns in all images. With every other binlog_row_image, all versions omit them from
# updates.


FIRST_WITHOUT: Final = (11, 8, 9)
"""First tested version whose full images omit generated columns; versions between 11.8.6 and this one are untested."""


def without_generated(schema: TableSchema) -> TableSchema:
    """Return a table without its generated columns."""
    kept = [number for number, column in enumerate(schema.columns) if not column.computed]
    key = tuple(kept.index(number) for number in schema.primary_key if number in kept)
    whole = len(key) == len(schema.primary_key)
    return replace(schema, columns=tuple(schema.columns[n] for n in kept), primary_key=key if whole else ())


def omits_generated(version: str) -> bool:
    """Return True if a server of this version ("11.8.9-MariaDB") omits generated columns even from FULL images."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= FIRST_WITHOUT
