"""The names of the tables that are to be read: asked for at the start, and followed along the stream.

In: a connection to the server that tables are read from, the relay log, the frontier that a checkpoint holds. Out: the
reading list has every wanted table that is not delivered; tables that the stream makes are added before the frontier
passes their names. A replica that may not have a table yet is waited for; one that does not get there is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from replica.relay_log.walks.ddl import statements_between
from replica.schema.effects.outline import outline_of
from replica.snapshot.check.catalog import count_rows, list_tables
from replica.snapshot.frontier import NOTHING
from replica.snapshot.watermark.lagging import await_position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.connection.asking import Answer, SnapshotConnection
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.log_view import LogView


class Ask(Protocol):
    """The asking of a server over a connection for this one question, again where the connection is lost."""

    def __call__(self, question: Callable[[SnapshotConnection], Answer], /) -> Answer:
        """Return what the question returns of a connection."""
        ...


class FirstNames(NamedTuple):
    """The outcome of the first look: how many tables are delivered already, and about how many rows the others have."""

    delivered: int
    estimated_rows: int


class FollowedNames:
    """The names of one query's tables, put into its reading list. `replica`: what tables are read from, None: the
    primary.

    `upto`: the place of the relay log up to which its statements are looked at; None before the first look.
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

    def begin(self, frontier: Frontier) -> FirstNames:
        """Put what a frontier says is not delivered into the list."""
        head = self._view.head()
        self.upto, self._list.named_at = head.location, head.position
        opened = dict(frontier.open)
        names = self._ask(self._names)
        left = [name for name in names if frontier.reached(name) == NOTHING]
        self._list.add([*left, *(name for name in opened if name not in left)], opened)
        delivered = sum(frontier.reached(name) is None for name in names)
        return FirstNames(delivered, self._ask(lambda connection: count_rows(connection, {*left, *opened})))

    def follow(self, frontier: Frontier, v: RelayHead) -> None:
        """Add the tables that were made since the last look, up to `v`."""
        if self.upto is None or v.location <= self.upto:
            return
        again = False
        self._list.named_at = v.position
        for statement in statements_between(self._view.log, self.upto, v.location):
            outline = outline_of(statement.query, statement.server)
            if outline is None:
                continue
            again |= not outline.tables
            made = [name for name in outline.defined if frontier.reached(name) is not None and self._wanted(name)]
            self._list.make(made, statement.gtid)
        if again and not frontier.done:
            self.list_again(frontier)
        self.upto = v.location

    def list_again(self, frontier: Frontier) -> None:
        """Ask the server for the names once more."""
        names = self._ask(self._names)
        self._list.add(name for name in names if frontier.reached(name) is not None)

    def _names(self, connection: SnapshotConnection) -> Collection[TableName]:
        """Return the names that a server has, which has got to the place that they are asked for."""
        if self._replica is not None:
            await_position(connection, self._list.named_at, self._replica, self._view)
        return list_tables(connection, self._wanted)
