"""`TableResolver` for binlog files: selects tables and finds the definitions that decode their rows.

Names, signs, character sets and labels come from the row metadata, if the server logged it. Otherwise they come from
DDL that precedes the row in the files, then from a schema file. Without any of these, columns are named @1, @2 and so
on. A definition is used only if it agrees with the table map in every fact that both have. `FileResolver.notes`
explains each assumption to the caller. After DDL the same table map may have other names: `FileResolver.apply` reports
when a decoder that caches tables by content must be replaced.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.tables.layout import TableTarget
from replica.rows.tables.match import UnnamedText, catalog_columns, unnamed_schema
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.history import SchemaHistory
from replica.schema.patterns import is_shadow, matcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.protocol.events.statement_events import QueryEvent
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.effects.history import Applied
    from replica.schema.table import TableSchema

# Limits the memory of `FileResolver.notes`. Tables beyond the limit are decoded, but have no note.
MAX_NOTES: Final = 10_000


class FileResolver:
    """Resolver of the tables in binlog files.

    Args:
        patterns: Selected tables as `database.table`, with `*`. An empty sequence selects all tables.
        exclude: Patterns of tables that are excluded from the selection.
        shadows: True to include the copies that online schema change tools make of a selected table.
        schema_file: Definitions from `SchemaHistory.from_file`.
        unnamed: How to read text columns of a table without a known definition. None refuses rows of such a table with
            a SchemaError, which gives the reason why no definition is known.
        lower_case_table_names: True if the server compares table names without case.
    """

    def __init__(
        self,
        patterns: Iterable[str] = (),
        *,
        exclude: Iterable[str] = (),
        shadows: bool = True,
        schema_file: SchemaHistory | None = None,
        unnamed: UnnamedText | None = "utf8",
        lower_case_table_names: bool = False,
    ) -> None:
        patterns = tuple(patterns)
        self._wanted = matcher(patterns) if patterns else None
        exclude = tuple(exclude)
        self._excluded = matcher(exclude) if exclude else None
        self._without_shadows_of = () if shadows else patterns
        self._schema_file = schema_file
        self._unnamed = unnamed
        self.history = SchemaHistory(schema_file, lower_case_table_names=lower_case_table_names)
        self.notes: dict[tuple[str, str], str] = {}
        """Notes by table: why its columns have no names, or which assumption its definition is based on."""
        self.unnamed: set[tuple[str, str]] = set()
        """Tables whose latest table map was decoded with the column names @1, @2, …"""

    def wants(self, database: str, table: str) -> bool:
        chosen = self._wanted is None or self._wanted.fits((database, table))
        if not chosen or is_shadow(database, table, self._without_shadows_of):
            return False
        return self._excluded is None or not self._excluded.fits((database, table))

    def apply(self, event: QueryEvent, *, server: ServerRules = ANY_SERVER) -> Applied:
        """Apply a statement of the file to the schema history.

        If the result is true, the caller must create its decoders again.
        """
        return self.history.apply_event(event, server=server)

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition that decodes the rows of a table map; None if the table is not selected."""
        name = (table_map.database, table_map.table)
        if not self.wants(*name):
            return None
        named = all(column.name is not None for column in table_map.columns)
        reason = self.history.reason(*name)
        for candidate in self._candidates(table_map):
            try:
                catalog_columns(table_map, candidate)
            except SchemaError as error:
                reason = reason or error.message
                continue
            self.unnamed.discard(name)
            self.notes.pop(name, None)
            self._note(name, "" if named else self.history.assumption(*name))
            return TableTarget(candidate)
        if named:
            self.unnamed.discard(name)
            self.notes.pop(name, None)
            return TableTarget()
        if self._unnamed is None:
            raise SchemaError(
                f"The columns of {'.'.join(name)} have no known names: {reason}.",
                hint="Give a schema file with its CREATE TABLE, or set binlog_row_metadata=FULL on the primary.",
            )
        self._note(name, reason)
        self.unnamed.add(name)
        return TableTarget(unnamed_schema(table_map, self._unnamed))

    def _candidates(self, table_map: TableMapEvent) -> list[TableSchema]:
        name = (table_map.database, table_map.table)
        found = [self.history.table(*name), self._schema_file.table(*name) if self._schema_file else None]
        return [_with_json(schema, table_map) for schema in found if schema is not None]

    def _note(self, name: tuple[str, str], note: str) -> None:
        if note and (name in self.notes or len(self.notes) < MAX_NOTES):
            self.notes[name] = note


def _with_json(schema: TableSchema, table_map: TableMapEvent) -> TableSchema:
    """Return the definition with the columns that MySQL logs as JSON declared as JSON.

    MariaDB's DDL parser makes JSON a longtext. Only the table map shows whether the server is MySQL.
    """
    if all(column.type != ColumnType.JSON for column in table_map.columns):
        return schema
    pairs = zip_longest(schema.columns, table_map.columns[: len(schema.columns)])
    return replace(
        schema,
        columns=tuple(
            replace(known, data_type="json", column_type="json")
            if wire is not None and wire.type == ColumnType.JSON and known.collation == "utf8mb4_bin"
            else known
            for known, wire in pairs
        ),
    )
