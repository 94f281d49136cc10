"""The tables that a query selects, and the definitions for decoding their rows: the decoder's `TableResolver`.

`SelectedTables` has plain values, which are pickled into tasks. It compares names as the binlog spells them; `*`
matches any text, in database and table. The catalog has definitions from the load of the query (names, signs and labels
that the stream may lack). A table that was created later must describe itself (binlog_row_metadata=FULL), or its rows
raise an error that names it.
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from replica.errors import SchemaError
from replica.schema.definition.session import ANY_SERVER, ServerRules
from replica.schema.patterns import ColumnMatcher, all_of, is_shadow, matcher, table_pattern, table_text
from replica.schema.text.naming import column_key, lowered, quoted
from streaming_source.selection.pushed_filters import OPERATIONS, ChangeFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.tables.layout import TableTarget
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.options.row_options import RowOptions
# The option `columns` has names and patterns with `*`, compared without regard to case, as MariaDB compares column
# names. `column_matcher` returns a matcher of names. `check_columns` refuses a name or pattern that matches no column,
# with the nearest name.


SHOWN: Final = 12
"""Most column names in a message. A table may have thousands."""


def column_matcher(patterns: Collection[str]) -> ColumnMatcher | None:
    """Return the matcher of selected columns; None without a pattern, which selects every column."""
    return ColumnMatcher(patterns) if patterns else None


def check_columns(patterns: Sequence[str], names: Iterable[str], where: str) -> None:
    """Refuse a name or pattern of the option `columns` that matches no column.

    Args:
        patterns: the option.
        names: all columns of the table, or of all selected tables.
        where: the end of the message: "shop.orders does not have".

    Raises:
        SchemaError: with the nearest name.
    """
    unique = list(dict.fromkeys(names))
    for pattern in patterns:
        if any(map(ColumnMatcher([pattern]).fits, unique)):
            continue
        near = difflib.get_close_matches(column_key(pattern), map(column_key, unique), n=1)
        match = next((name for name in unique if near and column_key(name) == near[0]), "")
        shown = ", ".join(unique[:SHOWN]) + (", …" if len(unique) > SHOWN else "")
        raise SchemaError(
            f"option columns names {pattern}, a column that {where}.",
            hint=f"Did you mean {match}?" if match else f"There are {shown or 'none'}.",
        )


_log = logging.getLogger(__name__)

Catalog: TypeAlias = "Mapping[tuple[str, str], TableSchema]"
"""Tables by (database, table)."""


@dataclass(frozen=True)
class SelectedTables:
    """Selected part of the stream.

    Attributes:
        patterns: the option tables, or the one name of the option table.
        catalog: definitions by (database, table).
        exclude: patterns of tables that are not selected, although `patterns` match them.
        columns: names or patterns of the columns in VARIANT; empty for all. The plan has the columns of typed images.
        include_ddl: whether statements that define the tables come as rows.
        statement_rows: whether statements that changed rows and were logged without row events come as rows.
        push_filters: whether a batch read accepts conditions.
        shadows: whether the copies of a table that schema change tools make count as tables.
        filter: the accepted conditions.
        unreadable: tables that the catalog may hide from the account.
        server: the rules for reading statements.
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

    def selects(self, database: str, table: str) -> bool:
        """Return True if changes of this table are selected."""
        name = (database, table)
        if not matcher(self.patterns).fits(name) or self._excludes(name):
            return False
        return self.shadows or not is_shadow(database, table, self.patterns)

    def spelled(self, name: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the names that a name in a statement may stand for.

        If no server was asked, it is unknown whether the server stores names in lower case: no binlog records this.
        """
        small = (lowered(name[0]), lowered(name[1]))
        return (name,) if small == name or self.server != ANY_SERVER else (name, small)

    def selects_statement(self, database: str, table: str) -> bool:
        """Return True if a statement on a table comes with the rows.

        '' as table stands for every table of the database, and '' as database for any database.
        """
        return self.selects(database, table) if table else not database or self.selects_database(database)

    def selects_database(self, database: str) -> bool:
        """Return True if any table of a database could be selected."""
        return matcher(self.patterns).fits_database(database) and all_of(database) not in self.exclude

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        from replica.rows.tables.layout import TableTarget

        database, table = table_map.database, table_map.table
        selected = sum(1 << number for number, name in enumerate(OPERATIONS) if name in self.operations)
        if not selected or not self.selects(database, table):
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
    """Log the patterns that match no table yet, and refuse columns that no table has.

    Raises:
        SchemaError: a name in the option `columns` that none of the selected tables has.
    """
    for pattern in options.patterns:
        if not any(map(matcher([pattern]).fits, catalog)):
            _log.warning("no table matches %s now; its rows arrive once one is created", pattern)
    if options.columns and catalog:
        existing = (column.name for table in catalog.values() for column in table.columns)
        check_columns(options.columns, existing, "no selected table has")


def selected_tables(
    options: RowOptions,
    patterns: tuple[str, ...],
    catalog: Catalog,
    unreadable: Unreadable | None = None,
    server: ServerRules = ANY_SERVER,
) -> SelectedTables:
    """Return the selection of these options.

    Args:
        options: the options of the query.
        patterns: the patterns of the options, or the one table in the server's spelling.
        catalog: the definitions by (database, table).
        unreadable: the tables that the catalog may hide from the account.
        server: the rules for reading statements.
    """
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


# `Unreadable.refusal` makes the error for rows that do not name their columns, if the account may not read their table.
# The error has the GRANT that allows reading the table.


@dataclass(frozen=True)
class Unreadable:
    """Patterns of which `account` may not read all tables.

    Attributes:
        grant: the statement that allows reading, with PLACE for its object.
    """

    PLACE: ClassVar[str] = "{table}"

    account: str
    grant: str
    patterns: tuple[str, ...]

    def mended_by(self, pattern: str) -> str:
        """Return the GRANT for a table, or for all tables of a pattern."""
        parsed = table_pattern(pattern)
        names = parsed.name or (parsed.one_database, None)
        return self.grant.replace(self.PLACE, ".".join(map(_quoted, names)), 1)

    def refusal(self, database: str, table: str) -> SchemaError | None:
        """Return the error for rows that do not name their columns, if the account may not read their table."""
        name = table_text((database, table))
        if not matcher(self.patterns).fits((database, table)):
            return None
        return SchemaError(
            f"the rows of {name} do not name their columns, and the account {self.account} has no SELECT on it, so "
            "the catalog could not name them either.",
            hint=f"{self.mended_by(name)} Or set binlog_row_metadata=FULL on the primary for later rows. Then start "
            "the query again: it continues at the same place.",
        )


def _quoted(name: str | None) -> str:
    return "*" if name is None else quoted(name)
