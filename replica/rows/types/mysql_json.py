"""JSON of MySQL, which MariaDB keeps as text (rows/types/text.py): rewritten as text before it is read."""

from __future__ import annotations

from replica.protocol.constants import ColumnType
from replica.rows.types.entry import KindEntry, SqlName, TypeEntry, WireType
from replica.rows.types.kinds import Kind

KINDS: tuple[KindEntry, ...] = ()
TYPES = (
    TypeEntry(
        declared="JSON of MySQL",
        names=(SqlName("json", words=()),),  # the word JSON in DDL is MariaDB's, which stands for LONGTEXT
        binlog=WireType((ColumnType.JSON,), "1-4 + n"),
        result_set=None,
        key=None,
        kind=Kind.TEXT,
        written=lambda *_: "JSON",
        remarks="As MySQL prints it.",
    ),
)
