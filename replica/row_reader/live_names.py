"""Column names while a log is followed: from the log as for files, otherwise from other sources.

`LiveNames` uses table patterns, a file of CREATE TABLE statements (optional), and a function that returns the
definition of a table. The function reads the log before the start, or asks the primary for its current definition. A
definition is used if it agrees with the table map in every fact that both have; otherwise columns are named @1, @2, …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from replica.log_reader.in_relay_log import RelayLogReader
from replica.protocol.events.decode import QueryEvent
from replica.row_reader.names import Names, read_schema_file
from replica.schema.effects.history import SchemaHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from replica.log_reader.part import Part
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.row_reader.notices import Notices
    from replica.rows.tables.target import TableTarget
    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema

    Ask = Callable[[str, str], TableSchema | None]


class AskedTables(SchemaHistory):
    """Tables as the statements of `base` define them, otherwise as `ask` returns them.

    Each lookup calls `ask`, because tables change.
    """

    def __init__(self, base: SchemaHistory | None, ask: Ask, notices: Notices) -> None:
        super().__init__(base)
        self._ask = ask
        self._notices = notices
        self.needed = False
        """Whether column names are needed; otherwise `ask` is not called."""

    def table(self, database: str, table: str) -> TableSchema | None:
        known = super().table(database, table)
        if known is not None or not self.needed:
            return known
        try:
            return self._ask(database, table)
        except ReplicaError as error:
            self._notices.say(f"{database}.{table}: its columns are unknown: {error.message}")
            return None


class LiveNames(Names):
    """`TableResolver` for a log that is followed."""

    def __init__(
        self,
        patterns: Sequence[str],
        notices: Notices,
        policy: ValuePolicy,
        schema_file: Path | None,
        ask: Ask | None,
        *,
        need_names: bool = False,
    ) -> None:
        known = None if schema_file is None else read_schema_file(schema_file)
        self._asked = None if ask is None else AskedTables(known, ask, notices)
        self._keys: dict[tuple[str, str], tuple[int, ...]] = {}
        super().__init__(patterns, notices, policy, self._asked or known, need_names=need_names)

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        if self._asked is not None:
            self._asked.needed = any(column.name is None for column in table_map.columns)
        target = super().resolve(table_map)
        schema = None if target is None else target.schema
        self._keys[table_map.database, table_map.table] = schema.primary_key if schema else ()
        return target

    def primary_key(self, table_map: TableMapEvent) -> tuple[int, ...]:
        """Return the indexes of the key's columns, in key order; empty if there is no key or the key is unknown."""
        return table_map.primary_key or self._keys.get((table_map.database, table_map.table), ())


class DefinedBefore:
    """Tables that statements in the log before `end` define; the log is read at the first lookup."""

    def __init__(self, log: RelayLog, end: RelayLocation) -> None:
        self._log = log
        self._end = end
        self._history: SchemaHistory | None = None

    def table(self, database: str, table: str) -> TableSchema | None:
        """Return the definition at `end`; None if the log does not define the table.

        Raises:
            DataLossError: Files were purged while they were read.
        """
        if self._history is None:
            self._history = SchemaHistory()
            for part in RelayLogReader(self._log).parts(self._log.oldest(), self._end, verify=False):
                if part.defines:
                    self._learn(self._history, part)
        return self._history.table(database, table)

    @staticmethod
    def _learn(history: SchemaHistory, part: Part) -> None:
        for found in part.walk():
            event = part.read(found)
            if isinstance(event, QueryEvent):
                history.apply_event(event, server=part.server)
