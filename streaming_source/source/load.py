"""Work of `.load()`: parse the options, inspect the server and its catalog, and make the plan with which tasks read.

`load_plan` turns the options, as Spark gives them, into a `ReadPlan`. It makes one connection, to the first host that
answers, and repeats a connection that breaks. A query on a daemon's relay log does not check the server's settings,
because the daemon does. If no server is named, the log describes the table. Errors before a query exists: bad options,
a failed login, a server that cannot be replicated from (all unmet prerequisites at once), a table that does not exist
(with the nearest names), columns that cannot be decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError, SchemaError
from replica.handshake.login.login import ask
from replica.handshake.primary.catalog import read_tables
from replica.handshake.primary.server import check, inspect_server, refusal
from replica.handshake.registration import MAX_CATALOG_BYTES, Query, Steps
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.identity import stores_lower_case
from replica.schema.definition.session import ANY_SERVER, ServerRules
from replica.schema.patterns import matcher, refuse_capitals, table_text
from streaming_source.attached.folder import attached_directory, primary_of, warn_of_unused
from streaming_source.options.source_options import SourceOptions
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.schema.origin import tables_and_origin
from streaming_source.schema.table_columns import catalog_table_columns
from streaming_source.schema.table_state import CatalogOrigin
from streaming_source.selection.access import check_access, refuse_absent, refuse_capitals_in_options, warn_of_generated
from streaming_source.selection.resolver import SelectedTables, announce_selection, selected_tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.schema.table import TableSchema
    from streaming_source.schema.row_schema import TableColumn
    from streaming_source.selection.resolver import Unreadable

Catalog = dict[tuple[str, str], "TableSchema"]
_NAMES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW'"


class _LoadedTables(NamedTuple):
    """Everything known about the selected tables.

    Attributes:
        patterns: their names as patterns.
        columns: the columns of the one table of a typed query.
        catalog: the server's definitions.
    """

    patterns: tuple[str, ...]
    columns: tuple[TableColumn, ...] | None
    catalog: Catalog
    origin: CatalogOrigin | None = None
    unreadable: Unreadable | None = None
    server: ServerRules = ANY_SERVER


class _Answers(NamedTuple):
    catalog: Catalog
    origin: CatalogOrigin
    unreadable: Unreadable | None
    server: ServerRules


def load_plan(given: Mapping[str, str]) -> ReadPlan:
    """Make the plan for these options.

    Raises:
        ConfigError: an option is unknown, missing, contradictory or out of range.
        AuthenticationError: the server refuses the account.
        PrerequisiteError: the server's settings do not allow replication.
        SchemaError: the table does not exist, or has a column that cannot be decoded.
        DisconnectedError: no host can be reached.
    """
    options = SourceOptions.parse(given)
    attached = attached_directory(options)
    if attached is not None:
        warn_of_unused(options)
    if options.replica is None and attached is not None:
        known = _from_log(options, attached)
    else:
        known = _from_server(options, options.connection, attached=attached is not None)
    plan = ReadPlan(
        shape="variant" if known.columns is None else options.row_shape,
        tables=selected_tables(options, known.patterns, known.catalog, known.unreadable, known.server),
        columns=known.columns,
        server=options.server or (primary_of(attached) if attached else ""),
        invalid_dates=options.invalid_dates,
        invalid_text=options.invalid_text,
        geometry=options.geometry,
        include_sql=options.include_sql,
        wide_sequence=options.sequence_numbers == "decimal",
        origin=known.origin,
    )
    plan.spark_schema()  # a column name that collides with a metadata column raises here
    return plan


def _from_server(options: SourceOptions, config: ReplicaConfig, *, attached: bool) -> _LoadedTables:
    questions = partial(_questions, options, config, attached=attached)
    answers = asyncio.run(ask(config, questions))
    if options.table is None:
        announce_selection(options, answers.catalog)
        return _LoadedTables(options.patterns, None, *answers)
    (table,) = answers.catalog.values()
    columns = catalog_table_columns(table, options.policy, options.columns)
    return _LoadedTables((table.name,), columns, *answers)  # as the server spells it


def _from_log(options: SourceOptions, directory: Path) -> _LoadedTables:
    server = ServerRules(lower_case=stores_lower_case(directory))
    if server.lower_case:
        refuse_capitals((*options.patterns, *(options.exclude_tables or ())))
    if options.table is None:
        if options.on_schema_change != "ignore":
            raise ConfigError(
                f"onSchemaChange={options.on_schema_change} with tables needs the columns of the tables.",
                hint="Set host and user: then a server's catalog gives them.",
            )
        return _LoadedTables(options.patterns, None, {}, server=server)
    from replica.relay_log.log import RelayLog
    from streaming_source.attached.table import newest_table

    log = RelayLog(directory)
    head = log.head()
    described = newest_table(log, options.table, options.policy, options.columns)
    position = GtidPosition() if head is None else head.position
    origin = CatalogOrigin(position, described=True, from_rows=described.schema)
    return _LoadedTables(options.patterns, described.columns, {}, origin, server=server)


def _questions(options: SourceOptions, config: ReplicaConfig, endpoint: Endpoint, *, attached: bool) -> Steps[_Answers]:
    """Ask all questions of a load in one conversation with the server."""
    if attached:
        ((named, setting),) = yield Query("SELECT VERSION(), @@lower_case_table_names")
        version, lower_case = named or "", setting != "0"
    else:
        server = yield from inspect_server(config.server_id)
        version, lower_case = server.version, server.lower_case
        refused = refusal(check(server, config.server_id, hosts=len(set(config.endpoints))), server, str(endpoint))
        if refused is not None:
            raise refused
    if lower_case:
        yield from refuse_capitals_in_options(options)
    wanted = SelectedTables(options.patterns, {}, exclude=options.exclude_tables or ())
    read = partial(_selected, options)
    catalog, origin = yield from tables_and_origin(read, wanted.selects_database, from_primary=not attached)
    warn_of_generated(options, catalog, version)
    rules = ServerRules.of(version, lower_case=lower_case)
    return _Answers(catalog, origin, (yield from check_access(options, catalog)), rules)


def _selected(options: SourceOptions) -> Steps[Catalog]:
    """Read the selected tables from the server's catalog."""
    if options.table is not None:
        with contextlib.suppress(SchemaError):
            return (yield from read_tables([options.table]))
        try:
            yield from refuse_absent(options.table)
        except SchemaError as error:
            names = [
                table_text((database or "", table or ""))
                for database, table in (yield Query(_NAMES, (), MAX_CATALOG_BYTES))
            ]
            near = difflib.get_close_matches(table_text(options.table), names, n=3, cutoff=0.6)
            if not near:
                raise
            raise SchemaError(error.message, hint=f"Did you mean {' or '.join(near)}?") from None
    wanted = SelectedTables(options.patterns, {}, exclude=options.exclude_tables or ())
    databases = [database for database in matcher(options.patterns).databases if database is not None]
    all_databases = len(databases) < len(matcher(options.patterns).databases)
    found = yield from read_tables([] if all_databases else [(database, None) for database in sorted(databases)])
    return {name: table for name, table in found.items() if wanted.selects(*name)}
