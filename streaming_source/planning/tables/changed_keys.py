"""Tables whose key changes while a part of their rows is delivered: that part was identified by the old key.

`ChangedKeys` takes the frontier at which a batch begins, the places of the batch, and the findings of the table reader.
It requests re-snapshots of such tables, and returns the frontier that tasks compare rows with, without tables that are
re-snapshot next. A query without a request folder stops there, because its sink would keep deleted rows.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Final

from replica.errors import KeyChangedError
from replica.relay_log.walks.ddl import statements_between
from replica.schema.effects.outline import outline_of
from replica.schema.patterns import matcher, table_text
from streaming_source.offsets.reading_requests import ReadingRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.rows.decode.open_rows.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import RequestFolder
    from streaming_source.options.reading_options import ReadAgain
    from streaming_source.planning.tables.row_reading import ReadKeys
    from streaming_source.rows.partition import ChangePartition

NAMED: Final = 5
"""Most names of tables in a message."""

_log = logging.getLogger(__name__)


class ChangedKeys:
    """The key changes of one query. One thread calls it.

    `keys` returns the object that knows the keys of tables. `in_rows` finds tables with rows of another key in
    partitions. `requests` is the folder of re-snapshot requests, and `again` the option resnapshot; both may be
    None.
    """

    def __init__(
        self,
        keys: Callable[[], ReadKeys],
        in_rows: Callable[[Sequence[ChangePartition]], Collection[TableName]],
        requests: RequestFolder | None,
        again: ReadAgain | None,
    ) -> None:
        self._keys = keys
        self._in_rows = in_rows
        self._requests = requests
        self._again = again

    def asked_for(
        self,
        log: RelayLog,
        frontier: Frontier,
        begin: RelayLocation,
        end: RelayLocation,
        found: Callable[[], Collection[TableName]],
    ) -> bool:
        """Request a re-snapshot of the tables whose keys changed; return whether there are any. False without
        `requests`.

        Args:
            log: the relay log.
            frontier: the rows that were delivered.
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
        return self._ask(self._requests, changed, frontier)

    def delivered(self, start: SourceOffset, frontier: Frontier) -> DeliveredKeys:
        """Return the rows delivered as of an offset, `frontier`, with keys to compare rows with.

        A table whose re-snapshot begins with the next batch counts as not delivered. Otherwise a batch that was planned
        before the key changed could never finish.

        Raises:
            KeyChangedError: a table has another key, and there is no request folder.
            ReplicaError: the server cannot be asked.
        """
        frontier = frontier.again(self._read_next(start, frontier))
        try:
            return self._keys().delivered(frontier)
        except KeyChangedError:
            changed = self._keys().changed(frontier, frontier.partly)
            if changed:
                if self._requests is None:
                    raise
                self._ask(self._requests, changed, frontier)
        return self._keys().delivered(frontier.again(changed))

    def asked_for_rows(self, frontier: Frontier, partitions: Sequence[ChangePartition]) -> bool:
        """Request a re-snapshot of the tables whose rows in the partitions have another key; return whether there are
        any.

        This finds a key that was changed and changed back, which the catalog does not show. False without `requests`.
        """
        if self._requests is None or not frontier.partly:
            return False
        return self._ask(self._requests, self._in_rows(partitions), frontier)

    def _read_next(self, start: SourceOffset, frontier: Frontier) -> list[TableName]:
        asked: set[TableName] = set()
        if self._requests is not None:
            asked.update(name for request in self._requests.due() for name in request.tables)
        named = None if self._again is None or start.again == self._again.word else matcher(self._again.patterns)
        return [name for name in frontier.partly if name in asked or (named is not None and named.fits(name))]

    @staticmethod
    def _ask(requests: RequestFolder, names: Collection[TableName], frontier: Frontier) -> bool:
        """Request a re-snapshot of tables; return whether there are any. The request is on disk, so it outlives this
        process. An equal request is written once.
        """
        if not names:
            return False
        told = repr([(name, frontier.reached(name)) for name in sorted(names)])
        word = f"key-{hashlib.blake2b(told.encode(), digest_size=16).hexdigest()}"
        requests.put(ReadingRequest(word, tuple(sorted(names))))
        _log.warning(
            "the key of %s was changed while a part of its rows was delivered: it is re-snapshotted from its first "
            "row on",
            ", ".join(map(table_text, sorted(names)[:NAMED])),
        )
        return True


# The tables that the statements of a batch name, whose definition may be another one after the batch. `named_between`
# returns the given tables that a statement between two places makes, changes, moves or removes, or may do so: a
# statement whose head the parser does not understand may concern any table.


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
