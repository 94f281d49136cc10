"""JSON of MySQL: rewritten as text before decoders read it. MariaDB stores JSON as text (rows/types/values/text.py)."""

from __future__ import annotations

from replica.protocol.constants import ColumnType
from replica.rows.types.entry import KindEntry, SqlName, TypeEntry, WireType
from replica.rows.types.kinds import Kind

KINDS: tuple[KindEntry, ...] = ()
TYPES = (
    TypeEntry(
        declared="JSON of MySQL",
        names=(SqlName("json", words=()),),  # JSON in DDL is a synonym of LONGTEXT, as in MariaDB
        binlog=WireType((ColumnType.JSON,), "1-4 + n"),
        result_set=None,
        key=None,
        kind=Kind.TEXT,
        written=lambda *_: "JSON",
        remarks="As MySQL prints it.",
    ),
)
