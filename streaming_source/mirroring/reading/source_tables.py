"""Selected tables of the server: definitions, keys, comments, and the position at which they are valid.

In: the parsed options of the stream. Out: `SourceTable`s by name, and a GTID position. The definitions include every
statement up to this position. Views and sequences are left out. A table without a key has empty `keys`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import PrerequisiteError
from replica.handshake.login.login import ask
from replica.handshake.primary.catalog import may_read, read_tables
from replica.handshake.registration import MAX_CATALOG_BYTES, Query
from replica.protocol.gtid import GtidPosition
from replica.schema.patterns import matcher, table_text
from replica.schema.table import TableSchema
from replica.snapshot.check.catalog import choose_key
from replica.snapshot.check.facts import ask_indexes
from replica.snapshot.check.verdict import ABSENT, ask_verdicts
from streaming_source.attached.folder import attached_directory
from streaming_source.mirroring.statements.added_values import read_defaults
from streaming_source.mirroring.statements.alter_proof import ambiguous_names, sharp_indexes
from streaming_source.schema.origin import READINGS
from streaming_source.selection.resolver import SelectedTables

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.schema.known_tables import TableName
    from replica.snapshot.check.facts import TableIndex
    from replica.snapshot.check.table_verdict import InitialVerdict
    from streaming_source.mirroring.statements.added_values import Defaults
    from streaming_source.options.source_options import SourceOptions

_LISTED = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_COMMENT, ENGINE FROM information_schema.TABLES "
    "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
)

_PLACE = "SELECT @@{position}"
_VIEWS = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'"


class SourceTable(NamedTuple):
    """Table of the server.

    Attributes:
        keys: the columns of its key; empty if there is none.
        ambiguous: the column that makes its only key ambiguous; None if there is no such column.
        unsettled: the table was altered during each attempt to read it, so its definition at the position is uncertain.
    """

    definition: TableSchema
    keys: tuple[str, ...]
    comment: str
    defaults: Defaults
    ambiguous: str | None = None
    unsettled: bool = False
    engine: str | None = None


class SourceTables(NamedTuple):
    """Selected tables, and the position up to which their definitions include every statement."""

    tables: dict[TableName, SourceTable]
    position: GtidPosition


def unknown_table(name: TableName) -> SourceTable:
    """Return a table about which the server reports nothing."""
    return SourceTable(TableSchema(database=name[0], table=name[1], columns=()), (), "", {})


def read_source_tables(options: SourceOptions) -> SourceTables:
    """Read the selected tables from the server's catalog.

    Raises:
        DisconnectedError: the server cannot be reached.
    """
    return asyncio.run(ask(options.connection, partial(_steps, options)))


def unreadable(
    options: SourceOptions, names: Collection[TableName] | None = None
) -> dict[TableName, PrerequisiteError]:
    """Return the tables that cannot be read, with the reasons. Tables that do not exist are left out.

    Args:
        options: the options of the stream.
        names: the tables to check. None checks all selected tables.

    Raises:
        DisconnectedError: the server cannot be reached.
    """
    wanted = wanted_tables(options)
    verdicts = asyncio.run(
        ask(
            _reading_from(options),
            lambda _: ask_verdicts(
                wanted.patterns,
                lambda *name: (names is None or name in names) and wanted.selects(*name),
                unkeyed=options.snapshot_unkeyed == "whole",
            ),
        )
    )
    return {
        one.name: _error(one)
        for one in verdicts.refused
        if (names is None or one.name in names) and ABSENT not in {reason.check for reason in one.reasons}
    }


def _error(verdict: InitialVerdict) -> PrerequisiteError:
    fixes = dict.fromkeys(reason.fix for reason in verdict.reasons if reason.fix)
    why = "; ".join(reason.what for reason in verdict.reasons)
    return PrerequisiteError(f"{table_text(verdict.name)} cannot be read: {why}.", hint="; ".join(fixes))


def hidden(options: SourceOptions, names: Collection[TableName]) -> list[TableName]:
    """Return the tables that the account may not read. The catalog hides these tables as if they did not exist.

    Raises:
        DisconnectedError: the server cannot be reached.
    """

    def steps(_: Endpoint) -> Steps[list[TableName]]:
        found: list[TableName] = []
        for name in names:
            denied = (yield from may_read(*name)) == "denied"
            found += [name] * denied
        return found

    return asyncio.run(ask(_reading_from(options), steps))


def views(options: SourceOptions, names: Collection[TableName]) -> list[TableName]:
    """Return the names that are views on the server.

    Raises:
        DisconnectedError: the server cannot be reached.
    """

    def steps(_: Endpoint) -> Steps[list[TableName]]:
        rows = yield Query(_VIEWS, (), MAX_CATALOG_BYTES)
        existing = {(str(database), str(table)) for database, table in rows}
        return [name for name in names if name in existing]

    return asyncio.run(ask(options.connection, steps))


def _reading_from(options: SourceOptions) -> ReplicaConfig:
    """Return the connection to the server from which snapshots are read."""
    config = options.connection
    if options.snapshot_endpoint is not None:
        config = config.model_copy(update={"host": (str(options.snapshot_endpoint),), "unix_socket": None})
    return config


def wanted_tables(options: SourceOptions) -> SelectedTables:
    """Return the table selection of the options."""
    return SelectedTables(options.patterns, {}, exclude=options.exclude_tables or ())


def _steps(options: SourceOptions, _: Endpoint) -> Steps[SourceTables]:
    wanted = wanted_tables(options)
    from_primary = attached_directory(options) is None
    tables, defaults, unsettled, position = yield from _unchanged(wanted, from_primary=from_primary)
    rows = yield Query(_LISTED, (), MAX_CATALOG_BYTES)
    listed = {(str(database), str(table)): (comment or "", engine) for database, table, comment, engine in rows}
    indexes = yield from ask_indexes([(database, None) for database in sorted({database for database, _ in tables})])
    found = {}
    for name, definition in tables.items():
        if name in listed:
            keys, ambiguous = _keys(definition, indexes.get(name, ()))
            comment, engine = listed[name]
            values = (definition, keys, comment, defaults.get(name, {}), ambiguous, name in unsettled, engine)
            found[name] = SourceTable(*values)
    return SourceTables(found, position)


def _keys(definition: TableSchema, indexes: Sequence[TableIndex]) -> tuple[tuple[str, ...], str | None]:
    """Return the key columns of a table. If there are none, also return the column that makes a key ambiguous."""
    key = choose_key(definition, sharp_indexes(definition, indexes))
    if key is not None:
        return tuple(definition.columns[number].name for number in key.columns), None
    own = choose_key(definition, indexes)
    return (), None if own is None else ambiguous_names(definition.columns[number] for number in own.columns)[0]


def _unchanged(
    wanted: SelectedTables, *, from_primary: bool
) -> Steps[tuple[dict[TableName, TableSchema], dict[TableName, Defaults], set[TableName], GtidPosition]]:
    """Return definitions, defaults, and a position at which they are valid.

    The catalog is read before and after the position, until both readings are equal, at most READINGS times.

    Returns:
        Definitions, defaults, the names of tables that differed in the last two readings, and the position.
    """
    tables = yield from _definitions(wanted)
    defaults = yield from read_defaults(sorted({database for database, _ in tables}))
    changed: set[TableName] = set()
    position = ""
    for _ in range(READINGS):
        ((answer,),) = yield Query(_PLACE.format(position="gtid_binlog_pos" if from_primary else "gtid_current_pos"))
        position = str(answer or "")
        tables_after = yield from _definitions(wanted)
        defaults_after = yield from read_defaults(sorted({database for database, _ in tables_after}))
        names = {*tables, *tables_after}
        changed = {
            name
            for name in names
            if (tables_after.get(name), defaults_after.get(name)) != (tables.get(name), defaults.get(name))
        }
        tables, defaults = tables_after, defaults_after
        if not changed:
            break
    return tables, defaults, changed, GtidPosition.parse(position)


def _definitions(wanted: SelectedTables) -> Steps[dict[TableName, TableSchema]]:
    databases = matcher(wanted.patterns).databases
    found = yield from read_tables(
        [] if None in databases else [(name, None) for name in databases if name is not None]
    )
    return {name: table for name, table in found.items() if wanted.selects(*name)}
