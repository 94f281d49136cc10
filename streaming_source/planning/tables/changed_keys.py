"""Tables whose key is changed while a part of them is delivered: that part was told apart by a key that is gone.

In: the frontier that a batch begins at, the places that it lies between, what the reader of tables found. Out: requests
to read such tables again, from their first rows on; the frontier as tasks compare rows with it, without tables that
are read again next. A query that no one gives requests to does not go on there: its sink would keep rows that are gone.
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
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import RequestFolder
    from streaming_source.options.reading_options import ReadAgain
    from streaming_source.planning.tables.row_reading import ReadKeys
    from streaming_source.rows.partition import ChangePartition

NAMED: Final = 5
"""The names of tables in a message."""

_log = logging.getLogger(__name__)


class ChangedKeys:
    """One per query, called by one thread. `keys` gives what knows the keys of tables, `in_rows` which tables have rows
    of another key in partitions; `requests` is where programs ask for tables, `again` the option that does; None:
    nothing does.
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
        """Ask for the tables whose keys are others, and tell whether there is one; never without `requests`.

        `begin` and `end`: places of the log between which keys may have been changed; `found`: those that what reads
        the tables knows of.
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
        """Return what is delivered as of an offset, `frontier`, with keys that rows are compared with.

        A table that the batch behind this one reads from its first row on counts as not delivered: a batch that was
        planned before its key changed would never come to an end with it.

        Raises:
            KeyChangedError: a table has another key, and no one has it read again.
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
        """Ask for the tables that partitions have rows of another key of, and tell whether there is one: a key that was
        changed and changed back since, so that the catalog does not tell. Never without `requests`.
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
        """Ask for tables, and tell whether there is one. The request is on disk, so that it outlives this process; the
        same one is there once.
        """
        if not names:
            return False
        told = repr([(name, frontier.reached(name)) for name in sorted(names)])
        word = f"key-{hashlib.blake2b(told.encode(), digest_size=16).hexdigest()}"
        requests.put(ReadingRequest(word, tuple(sorted(names))))
        _log.warning(
            "the key of %s was changed while a part of its rows was delivered: it is read again from its first row on",
            ", ".join(map(table_text, sorted(names)[:NAMED])),
        )
        return True


# The tables that the statements of a batch name: what was known of them may be another thing behind the batch.
#
# In: two places of the relay log, tables. Out: those of them that a statement between the places makes, changes,
# moves or removes, or may: one whose head is not understood may concern any table.


def named_between(
    log: RelayLog, start: RelayLocation, end: RelayLocation, tables: Collection[TableName]
) -> set[TableName]:
    """Return the tables that are named between two places."""
    found: set[TableName] = set()
    for statement in statements_between(log, start, end):
        outline = outline_of(statement.query, statement.server)
        if outline is not None:
            found.update(name for name in tables if not outline.tables or name in outline.tables)
    return found
