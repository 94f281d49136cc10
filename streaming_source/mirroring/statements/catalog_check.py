"""Compare the definitions of a mirror with the server's catalog: at a start, and every few minutes.

In: the rows of the control table behind a batch. Out: tables whose definition in the catalog is another one, although
no statement of the stream is between: ALTER TABLE under sql_log_bin=0 that leaves number and types of columns as they
are, so that rows which do not name their columns show nothing of it. The catalog is read at a position that may lie
ahead of the batch: a table is judged once the mirror is there, unless a statement named it meanwhile.
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
from streaming_source.mirroring.statements.statement_scope import statements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.reading.source_tables import SourceTables
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions

CHECK_EVERY_S: Final = 300.0
"""Reading the catalog takes milliseconds for some tables, and about a second for thousands."""
_FIELDS: Final = ("name", "data_type", "unsigned", "charset", "labels", "octets", "precision", "scale", "fsp", "period")
"""What the values of a column depend on."""

_log = logging.getLogger(__name__)


class CatalogCheck:
    """One per start of a mirror."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._next_s = time.monotonic()
        self._found: SourceTables | None = None
        self._before: dict[TableName, str] = {}

    def differing(
        self, rows: Mapping[TableName, ControlRow], facts: BatchFacts, end: SourceOffset
    ) -> dict[TableName, str]:
        """Take in a batch that is in the targets, and return tables with another definition in the catalog, and what is
        other there.
        """
        self._drop((name for name in list(self._before) if statements_of(facts, name)), rows)
        if self._found is None and time.monotonic() >= self._next_s:
            self._ask(rows)
        if self._found is None or not covers(end.position, self._found.position):
            return {}
        found, self._found = self._found, None
        other: dict[TableName, str] = {}
        for name in self._before:
            table = found.tables.get(name)
            why = None if table is None or table.unsettled else _difference(rows[name].table, table.definition)
            if why:
                other[name] = f"its definition on the server is another one, and no statement says so: {why}"
        return other

    def _ask(self, rows: Mapping[TableName, ControlRow]) -> None:
        self._next_s = time.monotonic() + CHECK_EVERY_S
        try:
            self._found = read_source_tables(self._options)
        except ReplicaError as error:  # the stream has a word on that, if it lasts
            _log.warning("the definitions of the mirror were not compared with the catalog: %s", error.message)
            return
        self._before = {name: row.definition for name, row in rows.items() if row.live}

    def _drop(self, named: Iterable[TableName], rows: Mapping[TableName, ControlRow]) -> None:
        """Judge no table that a statement named since the catalog was read, or that has another definition by now."""
        for name in named:
            del self._before[name]
        kept = {name: row for name, row in rows.items() if row.live}
        self._before = {
            name: told for name, told in self._before.items() if name in kept and kept[name].definition == told
        }


def _difference(known: TableSchema, told: TableSchema) -> str:
    """Return what a definition in the catalog has otherwise than the mirror's; '' if nothing."""
    ours, theirs = ([column for column in table.columns if not column.hidden] for table in (known, told))
    names = [[column.name for column in columns] for columns in (ours, theirs)]
    if names[0] != names[1]:
        return f"its columns are {', '.join(names[1])}, and were {', '.join(names[0])}."
    for column, other in zip(ours, theirs, strict=True):
        if _facts(column) != _facts(other):
            return f"its column {column.name} is {_shown(other.column_type)}, and was {_shown(column.column_type)}."
    keys = [[table.columns[number].name for number in table.primary_key] for table in (known, told)]
    if keys[0] != keys[1]:
        return f"its primary key is ({', '.join(keys[1])}), and was ({', '.join(keys[0])})."
    return "" if known.versioned == told.versioned else "it is system-versioned, or was so, on one side only."


def _facts(column: ColumnSchema) -> list[object]:
    one = replace(column, charset=charset_key(column.charset))
    return [getattr(one, field) for field in _FIELDS]


def _shown(declared: str) -> str:
    return declared if len(declared) <= 100 else f"{declared[:100]}…"
