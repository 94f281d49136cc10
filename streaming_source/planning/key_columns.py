"""The frontier of a snapshot as tasks compare rows with it: with the key's columns, and the key in its canonical form.

In: a frontier, which holds keys as row images do. Out: `DeliveredKeys`. What a table's key is, the server's catalog is
asked once for each table of which a part is delivered. Refused: a key of another form than the catalog's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.table_reader.catalog import describe_table
from replica.table_reader.connection import TableConnection
from replica.table_reader.frontier import NOTHING
from replica.table_reader.kept_key import key_bytes

if TYPE_CHECKING:
    from replica.config import Endpoint, ReplicaConfig
    from replica.schema.known_tables import TableName
    from replica.table_reader.chunks import ReadTable
    from replica.table_reader.frontier import Frontier

EVERY_TABLE: Final = "\U0010ffff", ""
"""A name behind all others: MariaDB has no character beyond U+FFFF in names."""

_log = logging.getLogger(__name__)


class KeyColumns:
    """The keys of a query's tables. `host`: the server that the tables are read from; None: the stream's."""

    def __init__(self, config: ReplicaConfig, host: Endpoint | None) -> None:
        self._config = config
        self._host = host
        self._known: dict[TableName, ReadTable] = {}

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier with keys that rows are compared with.

        Raises:
            SchemaError: a table has another key than when it was read.
            ReplicaError: the server cannot be asked.
        """
        begun = {name: kept for name, kept in frontier.open if kept != NOTHING}
        self._ask([name for name in begun if name not in self._known])
        opened = []
        for name, kept in begun.items():
            table = self._known.get(name)
            if table is None:
                _log.warning("table %s is gone while it was being read: its last changes are left out", ".".join(name))
                continue
            columns = tuple(table.schema.columns[index] for index in table.key.columns)
            opened.append(OpenTable(name, columns, key_bytes(table.schema, table.key, kept)))
        pending = tuple(name for name, kept in frontier.open if kept == NOTHING or name not in self._known)
        return DeliveredKeys(EVERY_TABLE if frontier.done else frontier.after, tuple(opened), pending)

    def _ask(self, names: list[TableName]) -> None:
        if not names:
            return
        connection = TableConnection.open(self._config, self._host)
        try:
            for name in names:
                found = describe_table(connection, name)
                if found is not None:
                    self._known[name] = found
        finally:
            connection.close()
