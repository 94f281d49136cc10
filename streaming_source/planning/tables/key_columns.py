"""The frontier of a snapshot as tasks compare rows with it: with the key's columns, and the key in its canonical form.

In: a frontier, which holds keys as row images do. Out: `DeliveredKeys`; the tables whose keys were changed since. What
a table's key is, the server's catalog is asked once for each table of which a part is delivered, and again where a
statement was met that may have changed it. Refused: a key of another form than the catalog's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, KeyChangedError, PrerequisiteError, SchemaError
from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.schema.patterns import table_text
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.connection.asking import asked
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.rows.kept_key import key_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.rows.chunk import ReadTable

EVERY_TABLE: Final = "\U0010ffff", ""
"""A name behind all others: MariaDB has no character beyond U+FFFF in names."""

_log = logging.getLogger(__name__)


class KeyColumns:
    """The keys of a query's tables. `host`: the server that the tables are read from; None: the stream's.

    `unkeyed`: a table may have no key, and is read as a whole then. `table_by_table`: one that cannot be read any more
    counts as one with another key.
    """

    def __init__(
        self, config: ReplicaConfig, host: Endpoint | None, *, unkeyed: bool = False, table_by_table: bool = False
    ) -> None:
        self._config = config
        self._host = host
        self._unkeyed = unkeyed
        self._table_by_table = table_by_table
        self._known: dict[TableName, ReadTable] = {}
        self._unreadable: dict[TableName, str] = {}

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier with keys that rows are compared with.

        Raises:
            KeyChangedError: a table has another key than when it was read.
            ReplicaError: the server cannot be asked.
        """
        begun = frontier.partly
        self._ask([name for name in begun if name not in self._known])
        opened = []
        for name, kept in begun.items():
            if name in self._unreadable:
                raise KeyChangedError(self._unreadable[name])
            table = self._known.get(name)
            if table is None:
                _log.warning(
                    "table %s is gone while it was being read: its last changes are left out", table_text(name)
                )
                continue
            columns = tuple(table.schema.columns[index] for index in table.key.columns)
            opened.append(OpenTable(name, columns, key_bytes(table.schema, table.key, kept)))
        pending = tuple(name for name, _ in frontier.open if name not in begun or name not in self._known)
        return DeliveredKeys(EVERY_TABLE if frontier.done else frontier.after, tuple(opened), pending)

    def changed(self, frontier: Frontier, names: Collection[TableName]) -> list[TableName]:
        """Return which of these tables have another key now than the one that a part of them was delivered by.

        Raises:
            ReplicaError: the server cannot be asked.
        """
        begun = {name: kept for name, kept in frontier.partly.items() if name in names}
        for name in begun:
            self._known.pop(name, None)
        self._ask(begun)
        return [name for name, kept in begun.items() if not self._fits(name, kept)]

    def _fits(self, name: TableName, kept: bytes) -> bool:
        """Tell whether a kept key is one of the table as it is now; of one that is gone there is nothing to tell."""
        table = self._known.get(name)
        if table is None:
            return name not in self._unreadable
        try:
            key_bytes(table.schema, table.key, kept)
        except KeyChangedError:
            return False
        return True

    def _ask(self, names: Collection[TableName]) -> None:
        if not names:
            return
        patience = self._config.connect_retry_s
        asked(lambda: TableConnection.open(self._config, self._host), lambda one: self._describe(one, names), patience)

    def _describe(self, connection: TableConnection, names: Collection[TableName]) -> None:
        for name in names:
            self._unreadable.pop(name, None)
            try:
                found = describe_table(connection, name, unkeyed=self._unkeyed)
            except (AuthenticationError, PrerequisiteError, SchemaError) as error:
                if not self._table_by_table:
                    raise
                self._unreadable[name] = error.message
                continue
            if found is not None:
                self._known[name] = found
