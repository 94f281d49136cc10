"""The construction of a query's `TableHistory` from its options and its plan, in the process that plans it.

If the options name a server, the history asks it only for tables whose statement the parser did not understand, over a
separate connection.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.handshake.ask import ask
from replica.handshake.primary.catalog import read_tables
from replica.protocol.gtid import GtidPosition
from replica.schema.patterns import table_text
from streaming_source.attached.folder import attached_directory
from streaming_source.planning.definitions.table_history import TableHistory
from streaming_source.schema.changes import SchemaChanges
from streaming_source.schema.origin import tables_and_origin
from streaming_source.schema.schema_file import declared_tables
from streaming_source.schema.store import SchemaStore
from streaming_source.selection.columns import column_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.handshake.registration import Steps
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.schema.following import Reread

_log = logging.getLogger(__name__)


def open_history(options: SourceOptions, plan: ReadPlan) -> TableHistory:
    """Return the history of a query in this process. It connects only if a statement needs it."""
    described = None if plan.origin is None else plan.origin.from_rows
    loaded = plan.tables.catalog if described is None else {(described.database, described.table): described}
    shown = column_matcher(options.columns or ())
    changes = SchemaChanges(options.on_schema_change, plan.columns, loaded, options.policy, shown)
    return TableHistory(
        plan.tables,
        plan.origin,
        changes,
        SchemaStore(options.schema_location),
        declared=declared_tables(options.schema_file),
        reread=_rereading(options),
        table_by_table=options.resnapshot_requests is not None,
    )


def _none(_: str) -> bool:
    return False


def _rereading(options: SourceOptions) -> Reread | None:
    if options.replica is None:
        return None
    config, from_primary = options.replica, attached_directory(options) is None
    table_by_table = options.resnapshot_requests is not None

    def reread(names: list[TableName]) -> tuple[Mapping[TableName, TableSchema], GtidPosition]:
        def read() -> Steps[dict[TableName, TableSchema]]:
            found: dict[TableName, TableSchema] = {}
            for name in names:
                try:
                    found |= yield from read_tables([name])
                except SchemaError:
                    continue  # dropped meanwhile: its DROP will follow
            return found

        try:
            steps = partial(tables_and_origin, read, _none, from_primary=from_primary)
            tables, origin = asyncio.run(ask(config, lambda _: steps()))
        except SchemaError as error:  # altered during each attempt to read them
            if not table_by_table:
                raise
            _log.warning("%s: %s", ", ".join(map(table_text, names)), error.message)
            return {}, GtidPosition()
        return tables, origin.position

    return reread
