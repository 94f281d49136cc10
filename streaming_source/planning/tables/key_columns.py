"""The frontier of a snapshot in the form that tasks compare rows with: key columns, and canonical keys.

`KeyColumns.delivered` takes a frontier with keys as row images have them, and returns `DeliveredKeys`.
`KeyColumns.changed` returns the tables whose keys changed. The server's catalog is asked once for the key of each
partly delivered table, and again after a statement that may have changed it. A key that does not have the catalog's
form is an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, KeyChangedError, PrerequisiteError, SchemaError
from replica.rows.decode.open_rows.frontier import DeliveredKeys, OpenTable
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
"""A name that sorts after all others: MariaDB has no character beyond U+FFFF in names."""

_log = logging.getLogger(__name__)


class KeyColumns:
    """The keys of a query's tables.

    `host`: the server to read tables from; None for the stream's. `unkeyed`: tables may have no key, and are read in
    one piece then. `table_by_table`: a table that cannot be read any more counts as one with another key.
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
                    "table %s was dropped or renamed while it was being read: its last changes are left out",
                    table_text(name),
                )
                continue
            columns = tuple(table.schema.columns[index] for index in table.key.columns)
            opened.append(OpenTable(name, columns, key_bytes(table.schema, table.key, kept)))
        pending = tuple(name for name, _ in frontier.open if name not in begun or name not in self._known)
        return DeliveredKeys(EVERY_TABLE if frontier.done else frontier.after, tuple(opened), pending)

    def changed(self, frontier: Frontier, names: Collection[TableName]) -> list[TableName]:
        """Return which of these tables have another key than the one by which a part of them was delivered.

        Raises:
            ReplicaError: the server cannot be asked.
        """
        begun = {name: kept for name, kept in frontier.partly.items() if name in names}
        for name in begun:
            self._known.pop(name, None)
        self._ask(begun)
        return [name for name, kept in begun.items() if not self._fits(name, kept)]

    def _fits(self, name: TableName, kept: bytes) -> bool:
        """Return True if a kept key is one of the table's current key. A table that was dropped counts as True."""
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
