"""What `.load()` does: options, a look at the server and its catalog, and from both the plan that tasks read with.

In: the options as Spark gives them. Out: a `ReadPlan`. One connection is made, to the first host that answers; a broken
one is tried again. With a daemon's relay log the server's settings are the daemon's business, and where no server is
named the log tells what the table looks like. Refused here, before a query exists: bad options, a failed login, a
server that cannot be replicated from (all unmet prerequisites at once), a table that does not exist (with the nearest
names), columns that cannot be decoded.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from replica.handshake.ask import ask
from replica.handshake.catalog import read_tables
from replica.handshake.registration import Query, Steps
from replica.handshake.server import check, inspect_server, refusal
from replica.relay.log import RelayLog
from replica.rows.types import ValuePolicy, output_column
from replica.schema.patterns import matcher
from streaming_source.attached import attached_directory, primary_of, warn_of_unused
from streaming_source.attached_table import newest_columns
from streaming_source.options import SourceOptions
from streaming_source.reader import ReadPlan
from streaming_source.resolver import SelectedTables
from streaming_source.schema import TableColumn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from replica.config import Endpoint, ReplicaConfig
    from replica.schema.table import TableSchema

Catalog = dict[tuple[str, str], "TableSchema"]
_NAMES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW'"


class _Known(NamedTuple):
    """Of the selected tables: their names as patterns, the columns of the one table, and the catalog's word."""

    patterns: tuple[str, ...]
    columns: tuple[TableColumn, ...] | None
    catalog: Catalog


def load_plan(given: Mapping[str, str]) -> ReadPlan:
    """The plan for these options.

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
        patterns, columns, catalog = _from_log(options, attached)
    else:
        patterns, columns, catalog = _from_server(options, options.connection, attached=attached is not None)
    plan = ReadPlan(
        shape="variant" if columns is None else options.row_shape,
        tables=SelectedTables(patterns, catalog),
        columns=columns,
        server=options.server or (primary_of(attached) if attached else ""),
        invalid_dates=options.invalid_dates,
        invalid_text=options.invalid_text,
        geometry=options.geometry,
        include_sql=options.include_sql,
    )
    plan.spark_schema()  # a column name that collides with ours is an error of this moment
    return plan


def _from_server(options: SourceOptions, config: ReplicaConfig, *, attached: bool) -> _Known:
    catalog = asyncio.run(ask(config, lambda endpoint: _questions(options, config, endpoint, attached=attached)))
    if options.table is None:
        return _Known(options.patterns, None, catalog)
    (table,) = catalog.values()
    outputs = [output_column(column, _policy(options)) for column in table.columns]
    columns = tuple(TableColumn(o.name, o.spark, c.comment) for o, c in zip(outputs, table.columns, strict=True))
    return _Known((table.name,), columns, catalog)  # as the server spells it


def _from_log(options: SourceOptions, directory: Path) -> _Known:
    columns = None
    if options.table is not None:
        columns = newest_columns(RelayLog(directory), options.table, _policy(options))
    return _Known(options.patterns, columns, {})


def _policy(options: SourceOptions) -> ValuePolicy:
    return ValuePolicy(options.invalid_dates, options.invalid_text, options.geometry)


def _questions(options: SourceOptions, config: ReplicaConfig, endpoint: Endpoint, *, attached: bool) -> Steps[Catalog]:
    """The whole conversation of a load."""
    if not attached:
        server = yield from inspect_server(config.server_id)
        refused = refusal(check(server, config.server_id), server, str(endpoint))
        if refused is not None:
            raise refused
    if options.table is not None:
        try:
            return (yield from read_tables([options.table]))
        except SchemaError as error:
            names = [f"{database}.{table}" for database, table in (yield Query(_NAMES))]
            near = difflib.get_close_matches(".".join(options.table), names, n=3, cutoff=0.6)
            if not near:
                raise
            raise SchemaError(error.message, hint=f"Did you mean {' or '.join(near)}?") from None
    wanted = matcher(options.patterns)
    databases = {pattern.partition(".")[0] for pattern in options.patterns}
    whole = any("*" in database for database in databases)
    found = yield from read_tables([] if whole else [(database, None) for database in sorted(databases)])
    return {name: table for name, table in found.items() if wanted.fullmatch(".".join(name))}
