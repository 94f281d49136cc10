"""The tables of a file that are wanted, and what their rows are read with: the decoder's `TableResolver` for files.

Names, signs, character sets and labels come from the row metadata where the server logged it; else from the DDL that
stood in the files before the row; else from a schema file; else columns are @1, @2, … A definition is used only if it
agrees with the table map in all that both tell. What came how is kept in `notes`, for the caller to say. After a DDL
the same table map may mean other names: `apply` says when a decoder that keeps tables by content must be made again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.tables.match import catalog_columns
from replica.rows.tables.target import TableTarget
from replica.rows.tables.unnamed import UnnamedText, unnamed_schema
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.history import SchemaHistory
from replica.schema.patterns import is_shadow, matcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.protocol.events.query import QueryEvent
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.effects.history import Applied
    from replica.schema.table import TableSchema

# Tables that a caller is told about; more are decoded as well, but a log of a million names helps no one.
MAX_NOTES: Final = 10_000


class FileResolver:
    """The resolver. `patterns`: the wanted tables as `database.table` with `*`; none: all. `exclude`: those of them to
    leave out.

    `shadows`: whether copies that tools make of a wanted table to change it are wanted as well.
    `schema_file`: from `SchemaHistory.from_file`. `unnamed`: how to read the text of a table that nothing is known of;
    None refuses its rows with a SchemaError that says why nothing is known.
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
        """Why a table's columns have no names, or what was assumed of it."""
        self.unnamed: set[tuple[str, str]] = set()
        """Tables whose columns are called @1, @2, … in the last table map of theirs."""

    def wants(self, database: str, table: str) -> bool:
        chosen = self._wanted is None or self._wanted.fits((database, table))
        if not chosen or is_shadow(database, table, self._without_shadows_of):
            return False
        return self._excluded is None or not self._excluded.fits((database, table))

    def apply(self, event: QueryEvent, *, server: ServerRules = ANY_SERVER) -> Applied:
        """Follow a statement of the file. If the result is true, make decoders again."""
        return self.history.apply_event(event, server=server)

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return what the rows of a table map are read with; None if the table is not wanted."""
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
    """Return the definition with MySQL's JSON columns as such, where MariaDB makes them a longtext; only the table map
    tells which server's it is.
    """
    if all(column.type != ColumnType.JSON for column in table_map.columns):
        return schema
    met = zip_longest(schema.columns, table_map.columns[: len(schema.columns)])
    return replace(
        schema,
        columns=tuple(
            replace(known, data_type="json", column_type="json")
            if wire is not None and wire.type == ColumnType.JSON and known.collation == "utf8mb4_bin"
            else known
            for known, wire in met
        ),
    )
