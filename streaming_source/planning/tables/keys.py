"""Keys of tables during a snapshot: columns of the frontier, changed keys, renamed tables.

`ChangedKeys` takes the frontier at which a batch begins, the places of the batch, and the findings of the table reader.
It requests re-snapshots of tables whose key changed. It returns the frontier with which tasks compare rows, without
tables that are re-snapshot next. A query without a request folder stops at a changed key, because its sink would keep
deleted rows.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import AuthenticationError, KeyChangedError, PrerequisiteError, SchemaError
from replica.relay_log.walks.ddl import statements_between
from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.schema.effects.effect import new_names, outline_of
from replica.schema.patterns import matcher, shadowed, table_text
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.connection.connection import TableConnection, ask_with_retries
from replica.snapshot.rows.kept_key import key_bytes
from streaming_source.offsets.reading_requests import ResnapshotRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.rows.chunk import ReadTable
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import RequestFolder
    from streaming_source.options.reading_options import ResnapshotOption
    from streaming_source.planning.tables.table_rows import ReadKeys
    from streaming_source.rows.partition import ChangePartition

NAMED: Final = 5
"""Most names of tables in a message."""
_log = logging.getLogger(__name__)


class ChangedKeys:
    """Changes of the keys of one query. Only one thread calls it.

    Args:
        keys: returns the object that knows the keys of tables.
        in_rows: finds the tables with rows of another key in partitions.
        requests: the folder of re-snapshot requests; None if the query has none.
        again: the option resnapshot; None if it is not set.
    """

    def __init__(
        self,
        keys: Callable[[], ReadKeys],
        in_rows: Callable[[Sequence[ChangePartition]], Collection[TableName]],
        requests: RequestFolder | None,
        again: ResnapshotOption | None,
    ) -> None:
        self._keys = keys
        self._in_rows = in_rows
        self._requests = requests
        self._resnapshot = again

    def request_changed(
        self,
        log: RelayLog,
        frontier: Frontier,
        begin: RelayLocation,
        end: RelayLocation,
        found: Callable[[], Collection[TableName]],
    ) -> bool:
        """Request a re-snapshot of the tables whose keys changed; return whether there are any.

        Without a request folder, the result is False.

        Args:
            log: the relay log.
            frontier: the frontier of delivered rows.
            begin: place from which keys may have changed.
            end: place up to which keys may have changed.
            found: returns the tables that the table reader found changed.
        """
        partly = frontier.partly
        if self._requests is None or not partly:
            return False
        changed = partly.keys() & found()
        named = named_between(log, begin, end, partly)
        if named:
            changed |= set(self._keys().changed(frontier, named))
        return self._request(self._requests, changed, frontier)

    def delivered(self, start: SourceOffset, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier of the delivered rows, with keys with which rows are compared.

        A table whose re-snapshot begins with the next batch counts as not delivered. Otherwise a batch that was planned
        before the key changed could never finish.

        Raises:
            KeyChangedError: a table has another key, and there is no request folder.
            ReplicaError: the server cannot be asked.
        """
        frontier = frontier.restarted(self._read_next(start, frontier))
        try:
            return self._keys().delivered(frontier)
        except KeyChangedError:
            changed = self._keys().changed(frontier, frontier.partly)
            if changed:
                if self._requests is None:
                    raise
                self._request(self._requests, changed, frontier)
        return self._keys().delivered(frontier.restarted(changed))

    def request_changed_rows(self, frontier: Frontier, partitions: Sequence[ChangePartition]) -> bool:
        """Request a re-snapshot of tables whose rows in the partitions have another key; return whether there are any.

        This finds a key that was changed and changed back, which the catalog does not show. Without a request folder,
        the result is False.
        """
        if self._requests is None or not frontier.partly:
            return False
        return self._request(self._requests, self._in_rows(partitions), frontier)

    def _read_next(self, start: SourceOffset, frontier: Frontier) -> list[TableName]:
        requested: set[TableName] = set()
        if self._requests is not None:
            requested.update(name for request in self._requests.due() for name in request.tables)
        named = (
            None
            if self._resnapshot is None or start.again == self._resnapshot.word
            else matcher(self._resnapshot.patterns)
        )
        return [name for name in frontier.partly if name in requested or (named is not None and named.fits(name))]

    @staticmethod
    def _request(requests: RequestFolder, names: Collection[TableName], frontier: Frontier) -> bool:
        """Request a re-snapshot of tables; return whether there are any.

        The request is on disk, so it outlives this process. An equal request is written once.
        """
        if not names:
            return False
        state = repr([(name, frontier.reached(name)) for name in sorted(names)])
        request_id = f"key-{hashlib.blake2b(state.encode(), digest_size=16).hexdigest()}"
        requests.put(ResnapshotRequest(request_id, tuple(sorted(names))))
        _log.warning(
            "the key of %s was changed while a part of its rows was delivered: it is re-snapshotted from its first "
            "row on",
            ", ".join(map(table_text, sorted(names)[:NAMED])),
        )
        return True


# Statements of a batch may change the definitions of the tables that they name. `named_between` returns which of the
# given tables a statement between two places may create, change, move or remove. A statement whose head the parser does
# not understand may concern any table.


def named_between(
    log: RelayLog, start: RelayLocation, end: RelayLocation, tables: Collection[TableName]
) -> set[TableName]:
    """Return the tables that statements between two places name."""
    found: set[TableName] = set()
    for statement in statements_between(log, start, end):
        outline = outline_of(statement.query, statement.server)
        if outline is not None:
            found.update(name for name in tables if not outline.tables or name in outline.tables)
    return found


# `KeyColumns.delivered` takes a frontier with keys in the form of row images, and returns `DeliveredKeys`.
# `KeyColumns.changed` returns the tables whose keys changed. The server's catalog is asked once for the key of each
# partly delivered table, and again after a statement that may have changed it. A key that does not have the catalog's
# form is an error.


EVERY_TABLE: Final = "\U0010ffff", ""
"""A name that sorts after all others: MariaDB has no character beyond U+FFFF in names."""


class KeyColumns:
    """Keys of a query's tables.

    Args:
        host: the server from which tables are read; None for the server of the stream.
        unkeyed: whether tables may have no key. Such tables are read in one piece.
        table_by_table: whether a table that cannot be read any more counts as a table with another key.
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
        """Return the frontier with keys with which rows are compared.

        Raises:
            KeyChangedError: a table has another key than when it was read.
            ReplicaError: the server cannot be asked.
        """
        begun = frontier.partly
        self._read_keys([name for name in begun if name not in self._known])
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
        """Return the tables whose key differs from the key by which a part of their rows was delivered.

        Raises:
            ReplicaError: the server cannot be asked.
        """
        begun = {name: kept for name, kept in frontier.partly.items() if name in names}
        for name in begun:
            self._known.pop(name, None)
        self._read_keys(begun)
        return [name for name, kept in begun.items() if not self._fits(name, kept)]

    def _fits(self, name: TableName, kept: bytes) -> bool:
        """Return True if a kept key has the form of the table's current key. A dropped table counts as True."""
        table = self._known.get(name)
        if table is None:
            return name not in self._unreadable
        try:
            key_bytes(table.schema, table.key, kept)
        except KeyChangedError:
            return False
        return True

    def _read_keys(self, names: Collection[TableName]) -> None:
        if not names:
            return
        patience = self._config.connect_retry_s
        ask_with_retries(
            lambda: TableConnection.open(self._config, self._host), lambda one: self._describe(one, names), patience
        )

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


# A renamed table may take the name of a table whose rows were delivered. `first_rename` takes the statements of a batch
# and the frontier. It returns the place right after the first such statement, and the names. The batch ends at this
# place. After it, nothing of these tables is delivered until their re-snapshot. A copy that gh-ost or
# pt-online-schema-change made of a table has the rows of the table that it replaces, so it needs no re-snapshot.


class RenamedTables(NamedTuple):
    """Tables that need a re-snapshot from `head` on, which is the place right after their RENAME."""

    head: RelayHead
    names: tuple[TableName, ...]


def first_rename(
    log: RelayLog,
    start: RelayLocation,
    head: RelayHead,
    frontier: Frontier,
    selects: Callable[[str, str], bool],
    *,
    lenient: bool = False,
) -> RenamedTables | None:
    """Return the first RENAME by which a table takes the name of a delivered table; None if there is none.

    With `lenient`, a statement that the parser does not understand is ignored, because the consumer of the stream
    requests a re-snapshot of all tables that it may concern.

    Raises:
        SchemaError: a statement renames something, and the parser does not understand it.
    """
    for statement in statements_between(log, start, head.location):
        try:
            renamed = new_names(statement.query, statement.server)
        except SchemaError as error:
            if not lenient:
                raise
            _log.warning("%s", error.message)
            continue
        names = tuple(
            new
            for new, old in sorted(renamed.items())
            if selects(*new) and not _is_copy(old, new) and frontier.restarted([new]) != frontier
        )
        if names:
            return RenamedTables(log.cut(statement.location, head.location, 1), names)
    return None


def _is_copy(old: TableName, new: TableName) -> bool:
    original = shadowed(old[1])
    return old[0] == new[0] and original is not None and original.lower() == new[1].lower()
