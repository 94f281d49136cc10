"""Tables of a reading: the selected tables that can be decoded, with notices about the rest.

Column names come from the row metadata, otherwise from DDL in the files, otherwise from a file of CREATE TABLE
statements. Without any of these, columns are named @1, @2 and so on (`FileResolver` decides). A table that cannot be
decoded is omitted and reported once, and the dump continues with the other tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import MAY_READ, ConfigError, ReplicaError
from replica.protocol.events.decode import QueryEvent
from replica.readers.log.in_relay_log import RelayLogReader
from replica.rows.tables.file_tables import FileResolver
from replica.rows.tables.layout import TableTarget, compile_layout
from replica.rows.tables.plan import has_hidden_width
from replica.schema.effects.history import SchemaHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.readers.log.reader import Part
    from replica.readers.rows.progress import Notices
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema

    Lookup = Callable[[str, str], TableSchema | None]

UNNAMED: Final = (
    "In such tables, integers are shown as signed, ENUM and SET as numbers, and text that is not UTF-8 as bytes. Give "
    "the file with their CREATE TABLE before the others or as --schema. Or set binlog_row_metadata=FULL for later logs."
)


class CountedTables:
    """`TableResolver` for a reading that counts rows, and so needs no column names."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return self._names.counted(table_map)


class Names:
    """`TableResolver` that reports the tables that cannot be decoded."""

    def __init__(
        self,
        patterns: Sequence[str],
        notices: Notices,
        policy: ValuePolicy,
        schema_file: Path | SchemaHistory | None = None,
        *,
        need_names: bool = False,
    ) -> None:
        """Take the selection.

        Args:
            patterns: The selected tables.
            notices: Receives the reports.
            policy: How to convert values that the output types cannot hold.
            schema_file: A file of CREATE TABLE statements, as a path or already read.
            need_names: True to omit tables whose columns have no names.
        """
        known = read_schema_file(schema_file) if isinstance(schema_file, Path) else schema_file
        self._files = FileResolver(patterns, schema_file=known, unnamed=None if need_names else "bytes")
        self._notices = notices
        self._policy = policy

    def wants(self, database: str, table: str) -> bool:
        return self._files.wants(database, table)

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition that decodes the rows of a table map.

        Return None if the table is not selected or its rows cannot be decoded.
        """
        name = f"{table_map.database}.{table_map.table}"
        try:
            target = self._files.resolve(table_map)
            if target is None:
                return None
            compile_layout(table_map, target.schema, None, self._policy)
        except ReplicaError as error:
            self._notices.left_out(error, where=f"rows of {name} are not shown: ")
            return None
        if self.is_unnamed(table_map):
            reason = self._files.notes.get((table_map.database, table_map.table), "")
            self._notices.say(f"{name}: its columns are called @1, @2, …, because {reason}.")
            self._notices.say(UNNAMED)
        elif note := self._files.notes.get((table_map.database, table_map.table)):
            self._notices.say(f"{name}: {note}")
        return target

    def counted(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition that counts the rows of a table map.

        Return None if the table is not selected or the size of its rows is unknown.
        """
        if not self.wants(table_map.database, table_map.table):
            return None
        if not any(has_hidden_width(column) for column in table_map.columns):
            return TableTarget()
        try:
            target = self._files.resolve(table_map)
            if target is not None:
                compile_layout(table_map, target.schema, (), self._policy)
        except ReplicaError as error:
            self._notices.left_out(error, where=f"rows of {table_map.database}.{table_map.table} are not counted: ")
            return None
        return target

    def is_unnamed(self, table_map: TableMapEvent) -> bool:
        """Return True if the column names of the table are unknown, because only its table map describes it."""
        if all(column.name is not None for column in table_map.columns):
            return False
        return (table_map.database, table_map.table) in self._files.unnamed

    def learn(self, part: Part) -> bool:
        """Apply the DDL of a range; return True if tables may now have other columns."""
        changed = False
        for found in part.walk():
            event = part.read(found)
            if isinstance(event, QueryEvent):
                changed |= bool(self._files.apply(event, server=part.server))
        return changed


def read_schema_file(schema_file: Path) -> SchemaHistory:
    """Read a file of CREATE TABLE statements.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8.
            SchemaError: The table of a statement cannot be identified.
    """
    try:
        return SchemaHistory.from_file(schema_file)
    except OSError as error:
        raise ConfigError(f"--schema: {schema_file} cannot be read: {error.strerror}.", hint=MAY_READ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--schema: {schema_file} is not text in UTF-8.",
            hint="Give a file of SQL, as mariadb-dump --no-data writes it.",
        ) from error


# A definition from `lookup` may be newer than the rows. The definition is used only if it agrees with the table map in
# every fact that both contain. Otherwise columns are named @1, @2, …


class LookedUpTables(SchemaHistory):
    """Tables as the statements of `base` define them, otherwise as `lookup` returns them.

    Each lookup calls `lookup`, because tables change.
    """

    def __init__(self, base: SchemaHistory | None, lookup: Lookup, notices: Notices) -> None:
        super().__init__(base)
        self._lookup = lookup
        self._notices = notices
        self.needed = False
        """Whether column names are needed; otherwise `lookup` is not called."""

    def table(self, database: str, table: str) -> TableSchema | None:
        known = super().table(database, table)
        if known is not None or not self.needed:
            return known
        try:
            return self._lookup(database, table)
        except ReplicaError as error:
            self._notices.say(f"{database}.{table}: its columns are unknown: {error.message}")
            return None


class LiveNames(Names):
    """`TableResolver` for a log that is still growing."""

    def __init__(
        self,
        patterns: Sequence[str],
        notices: Notices,
        policy: ValuePolicy,
        schema_file: Path | None,
        lookup: Lookup | None,
        *,
        need_names: bool = False,
    ) -> None:
        known = None if schema_file is None else read_schema_file(schema_file)
        self._looked_up = None if lookup is None else LookedUpTables(known, lookup, notices)
        self._keys: dict[tuple[str, str], tuple[int, ...]] = {}
        super().__init__(patterns, notices, policy, self._looked_up or known, need_names=need_names)

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        if self._looked_up is not None:
            self._looked_up.needed = any(column.name is None for column in table_map.columns)
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
