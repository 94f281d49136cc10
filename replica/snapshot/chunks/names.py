"""List of the tables to read: names at the start, and later CREATE and RENAME statements in the stream.

The reading list contains every selected table that is not delivered. `SnapshotNames` adds tables that the stream
creates before the frontier passes their names. If tables are read from a replica, the list waits until the replica
reaches the position of the names. A replica that does not reach it is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from replica.relay_log.walks.ddl import statements_between
from replica.schema.effects.effect import outline_of
from replica.snapshot.check.catalog import count_rows, list_tables
from replica.snapshot.frontier import NOTHING
from replica.snapshot.watermark.low import await_position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.connection.connection import Answer, SnapshotConnection
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.watermark.low import LogView


class Ask(Protocol):
    """Callable that runs a question over a new connection and repeats it after a lost connection."""

    def __call__(self, question: Callable[[SnapshotConnection], Answer], /) -> Answer:
        """Return the question's answer."""
        ...


class FirstListing(NamedTuple):
    """Result of the first listing: the number of delivered tables and the estimated rows of the other tables."""

    delivered: int
    estimated_rows: int


class SnapshotNames:
    """Names of one query's tables, kept up to date in its reading list.

    `replica` is the server that tables are read from; None means the primary. `upto` is the relay log location up to
    which DDL is processed; None before the first listing.
    """

    def __init__(
        self,
        view: LogView,
        names: ReadingList,
        wanted: Callable[[TableName], bool],
        ask: Ask,
        replica: Endpoint | None,
    ) -> None:
        self._view = view
        self._list = names
        self._wanted = wanted
        self._ask = ask
        self._replica = replica
        self.upto: RelayLocation | None = None

    def begin(self, frontier: Frontier) -> FirstListing:
        """Add all tables that are not delivered according to the frontier."""
        head = self._view.head()
        self.upto, self._list.named_at = head.location, head.position
        opened = dict(frontier.open)
        names = self._ask(self._names)
        left = [name for name in names if frontier.reached(name) == NOTHING]
        self._list.add([*left, *(name for name in opened if name not in left)], opened)
        delivered = sum(frontier.reached(name) is None for name in names)
        return FirstListing(delivered, self._ask(lambda connection: count_rows(connection, {*left, *opened})))

    def follow(self, frontier: Frontier, v: RelayHead) -> None:
        """Add the tables that statements up to `v` created."""
        if self.upto is None or v.location <= self.upto:
            return
        unknown = False
        self._list.named_at = v.position
        for statement in statements_between(self._view.log, self.upto, v.location):
            outline = outline_of(statement.query, statement.server)
            if outline is None:
                continue
            unknown |= not outline.tables
            created = [name for name in outline.defined if frontier.reached(name) is not None and self._wanted(name)]
            self._list.make(created, statement.gtid)
        if unknown and not frontier.done:
            self.relist(frontier)
        self.upto = v.location

    def relist(self, frontier: Frontier) -> None:
        """List the server's tables again."""
        names = self._ask(self._names)
        self._list.add(name for name in names if frontier.reached(name) is not None)

    def _names(self, connection: SnapshotConnection) -> Collection[TableName]:
        """Return the server's table names, after the server has reached the position of the reading list."""
        if self._replica is not None:
            await_position(connection, self._list.named_at, self._replica, self._view)
        return list_tables(connection, self._wanted)
