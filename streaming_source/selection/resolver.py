"""The tables of the stream that a query wants, and what its rows are decoded with: the decoder's `TableResolver`.

Plain values that pickle into tasks. Names are compared as the binlog spells them; `*` stands for any text, in database
and table alike. The catalog's word on a table (names, signs and labels the stream may lack) was read when the query
was loaded; a table that was created later must describe itself (binlog_row_metadata=FULL), or it is refused by name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from replica.schema.definition.session import ANY_SERVER, ServerRules
from replica.schema.patterns import all_of, is_shadow, matcher
from replica.schema.text.naming import lowered
from streaming_source.selection.columns import check_columns, column_matcher
from streaming_source.selection.pushed_filters import OPERATIONS, ChangeFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.tables.target import TableTarget
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.options.row_options import RowOptions
    from streaming_source.selection.unreadable import Unreadable

_log = logging.getLogger(__name__)

Catalog: TypeAlias = "Mapping[tuple[str, str], TableSchema]"
"""Tables by (database, table)."""


@dataclass(frozen=True)
class SelectedTables:
    """The part of the stream that is asked for.

    `patterns` as in the option tables, or the one name of the option table; `exclude` wins over them. `catalog` by
    (database, table). `columns`: what VARIANT shows, by name or pattern, all if empty (typed columns are chosen in the
    plan). `shadows`: copies that tools make of a table to change it count as tables of their own. `include_ddl`:
    statements that define the tables come as rows too; `statement_rows`: so do those that changed rows and were logged
    without them. `push_filters`: a batch read's conditions may be taken over;
    `filter` is what they leave of all this. `unreadable`: what the catalog may hide from the account. `server`: the
    rules to read statements by.
    """

    patterns: tuple[str, ...]
    catalog: Catalog
    exclude: tuple[str, ...] = ()
    operations: tuple[str, ...] = OPERATIONS
    columns: tuple[str, ...] = ()
    skip_unchanged: bool = False
    include_ddl: bool = False
    statement_rows: bool = False
    push_filters: bool = False
    shadows: bool = False
    filter: ChangeFilter | None = None
    unreadable: Unreadable | None = None
    server: ServerRules = ANY_SERVER

    def wants(self, database: str, table: str) -> bool:
        """Tell whether changes of this table are asked for."""
        name = (database, table)
        if not matcher(self.patterns).fits(name) or self._excludes(name):
            return False
        return self.shadows or not is_shadow(database, table, self.patterns)

    def spelled(self, name: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the names that a name of a statement may stand for: of a server that was not asked, no binlog tells
        whether it stores names in small letters.
        """
        small = (lowered(name[0]), lowered(name[1]))
        return (name,) if small == name or self.server != ANY_SERVER else (name, small)

    def wants_statement(self, database: str, table: str) -> bool:
        """Tell whether a statement on a table comes with the rows: '' as table is all of the database, and '' as
        database is any.
        """
        return self.wants(database, table) if table else not database or self.wants_database(database)

    def wants_database(self, database: str) -> bool:
        """Tell whether any table of a database could be asked for."""
        return matcher(self.patterns).fits_database(database) and all_of(database) not in self.exclude

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        from replica.rows.tables.target import TableTarget

        database, table = table_map.database, table_map.table
        selected = sum(1 << number for number, name in enumerate(OPERATIONS) if name in self.operations)
        if not selected or not self.wants(database, table):
            return None
        known = self.catalog.get((database, table))
        if known is None and self.unreadable is not None and any(c.name is None for c in table_map.columns):
            error = self.unreadable.refusal(database, table)
            if error is not None:
                raise error
        left = selected if self.filter is None else selected & self.filter.operations(database, table)
        return TableTarget(
            known,
            operations=selected,
            delivered=left,
            columns=column_matcher(self.columns),
            skip_unchanged=self.skip_unchanged,
        )

    def _excludes(self, name: TableName) -> bool:
        return bool(self.exclude) and matcher(self.exclude).fits(name)


def announce_selection(options: RowOptions, catalog: Catalog) -> None:
    """Log, of a query over many tables, what matches no table yet, and refuse columns that no table has.

    Raises:
        SchemaError: a name in the option columns that none of the selected tables has.
    """
    for pattern in options.patterns:
        if not any(map(matcher([pattern]).fits, catalog)):
            _log.warning("no table is called %s now; its rows come if one is created", pattern)
    if options.columns and catalog:
        there = (column.name for table in catalog.values() for column in table.columns)
        check_columns(options.columns, there, "no selected table has")


def selected_tables(
    options: RowOptions,
    patterns: tuple[str, ...],
    catalog: Catalog,
    unreadable: Unreadable | None = None,
    server: ServerRules = ANY_SERVER,
) -> SelectedTables:
    """Return what these options select; `patterns` are theirs, or the one table as the server spells it."""
    return SelectedTables(
        patterns,
        catalog,
        exclude=options.exclude_tables or (),
        operations=options.row_operations,
        columns=options.columns or () if options.table is None else (),
        skip_unchanged=options.skip_unchanged,
        include_ddl=options.wants_ddl,
        statement_rows=options.on_statement_dml == "row",
        push_filters=options.push_filters,
        shadows=options.include_shadow_tables,
        unreadable=unreadable,
        server=server,
    )
