"""Compare the mirror's definitions with the server's catalog, at a start and every CHECK_EVERY_S seconds.

In: the rows of the control table after a micro-batch. Out: the tables whose definition in the catalog differs although
the stream has no statement for it. This finds an ALTER TABLE under sql_log_bin=0 that keeps the number and types of
columns, which rows without column names do not show. The catalog is read at a position that may be ahead of the
micro-batch. A table is compared when the mirror reaches this position, unless a statement named the table since the
reading.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError
from replica.protocol.charset import charset_key
from replica.protocol.gtid import covers
from streaming_source.mirroring.reading.source_tables import read_source_tables
from streaming_source.mirroring.statements.alterations import statements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.reading.source_tables import SourceTables
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions

CHECK_EVERY_S: Final = 300.0
"""Seconds between two readings of the catalog. One takes milliseconds for some tables, about a second for thousands."""
_FIELDS: Final = ("name", "data_type", "unsigned", "charset", "labels", "octets", "precision", "scale", "fsp", "period")
"""Attributes of a column on which its values depend."""
_log = logging.getLogger(__name__)


class CatalogCheck:
    """Check of all definitions; one for each start of a mirror."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._next_s = time.monotonic()
        self._found: SourceTables | None = None
        self._before: dict[TableName, str] = {}

    def differing(
        self, rows: Mapping[TableName, ControlRow], facts: BatchFacts, end: SourceOffset
    ) -> dict[TableName, str]:
        """Return the tables whose definition in the catalog differs, with the difference.

        Args:
            rows: the rows of the control table.
            facts: the facts of the last micro-batch that the targets have.
            end: the end of this micro-batch.
        """
        self._drop((name for name in list(self._before) if statements_of(facts, name)), rows)
        if self._found is None and time.monotonic() >= self._next_s:
            self._read_catalog(rows)
        if self._found is None or not covers(end.position, self._found.position):
            return {}
        found, self._found = self._found, None
        other: dict[TableName, str] = {}
        for name in self._before:
            table = found.tables.get(name)
            why = None if table is None or table.unsettled else _difference(rows[name].table, table.definition)
            if why:
                other[name] = f"its definition on the server differs, and no statement in the binlog explains it: {why}"
        return other

    def _read_catalog(self, rows: Mapping[TableName, ControlRow]) -> None:
        self._next_s = time.monotonic() + CHECK_EVERY_S
        try:
            self._found = read_source_tables(self._options)
        except ReplicaError as error:  # the stream reports a fault that persists
            _log.warning("the definitions of the mirror were not compared with the catalog: %s", error.message)
            return
        self._before = {name: row.definition for name, row in rows.items() if row.live}

    def _drop(self, named: Iterable[TableName], rows: Mapping[TableName, ControlRow]) -> None:
        """Forget tables that a statement has named, or whose definition has changed, after the catalog was read."""
        for name in named:
            del self._before[name]
        kept = {name: row for name, row in rows.items() if row.live}
        self._before = {
            name: definition
            for name, definition in self._before.items()
            if name in kept and kept[name].definition == definition
        }


def _difference(known: TableSchema, current: TableSchema) -> str:
    """Return how a definition in the catalog differs from the mirror's; '' if it does not."""
    ours, theirs = ([column for column in table.columns if not column.hidden] for table in (known, current))
    names = [[column.name for column in columns] for columns in (ours, theirs)]
    if names[0] != names[1]:
        return f"its columns are {', '.join(names[1])}, and were {', '.join(names[0])}."
    for column, other in zip(ours, theirs, strict=True):
        if _facts(column) != _facts(other):
            return f"its column {column.name} is {_shown(other.column_type)}, and was {_shown(column.column_type)}."
    keys = [[table.columns[number].name for number in table.primary_key] for table in (known, current)]
    if keys[0] != keys[1]:
        return f"its primary key is ({', '.join(keys[1])}), and was ({', '.join(keys[0])})."
    return (
        ""
        if known.versioned == current.versioned
        else "it is system-versioned either on the server or in the mirror, not in both."
    )


def _facts(column: ColumnSchema) -> list[object]:
    one = replace(column, charset=charset_key(column.charset))
    return [getattr(one, field) for field in _FIELDS]


def _shown(declared: str) -> str:
    return declared if len(declared) <= 100 else f"{declared[:100]}…"
