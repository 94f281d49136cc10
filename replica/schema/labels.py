"""Labels of ENUM and SET that information_schema cannot print, and a query that reads them.

The server keeps column declarations in the three-byte UTF-8 of its identifiers. So information_schema and SHOW CREATE
TABLE show a character beyond U+FFFF in a label as '?'. In a binary column, each of its bytes and each invalid byte is a
'?'. A variable of the column's type shows the real label. `doubtful_labels` returns the columns to query: those with a
'?' in a label, if their character set has such characters. Invalid bytes become U+FFFD.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from replica.protocol.charset import charset_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replica.schema.table import ColumnSchema, TableSchema

_LOST = "?"
_BINARY = "binary"
_BYTES_BEYOND_BMP = 4  # maximal bytes of a character, in the character sets with characters beyond U+FFFF


class DoubtfulLabels(NamedTuple):
    """Column number `column` of a table, and the indexes of its labels that may be wrong."""

    schema: TableSchema
    column: int
    labels: tuple[int, ...]

    def query(self) -> str:
        """Return a statement whose result is one row: the labels in hexadecimal UTF-8. It needs SELECT on the table."""
        column = self.schema.columns[self.column]
        place = (self.schema.database, self.schema.table, column.name)
        names = ".".join(f"`{name.replace('`', '``')}`" for name in place)
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
