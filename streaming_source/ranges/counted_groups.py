"""Counts of the selected tables' row changes in the transactions after a query's place, each counted once.

`CountedGroups` takes the relay log, the place where the next batch begins, and how far to count. It returns the number
of row changes, and the first transaction that exceeds the limits of a batch. Counts are kept until a batch takes them.
So a poll scans only the bytes that arrived after the last poll, and each byte is scanned once, however small batches
are. Transactions without rows of the selected tables take no memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.relay_log.location import RelayLocation, relay_number
from replica.relay_log.walks.ddl import MappedRelayRange
from replica.relay_log.walks.xa import follow
from streaming_source.rows.partition import MappedRange

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.relay_log.log import RelayLog, RelayRange
    from replica.relay_log.walks.xa import Prepared
    from streaming_source.ranges.places import OffsetPlace
    from streaming_source.selection.resolver import SelectedTables

    Ints = npt.NDArray[np.int64]

COUNT_BYTES: Final = 8 << 20
"""Bytes to count at once: enough to keep the kernels busy, and few enough to stop soon after the limit."""
LARGE_BYTES: Final = 4 * COUNT_BYTES
"""Size in bytes from which a piece can only be one transaction, which is scanned without loading all of it."""
MAX_GROUPS: Final = 1 << 20
"""Most transactions with rows to keep, of 32 bytes each. A batch with more transactions ends there."""
MAX_PIECES: Final = 256
"""Most pieces (one a poll) before they are joined, so that the search for a limit stays fast."""

_FILE, _START, _END, _ROWS = range(4)


class Excess(NamedTuple):
    """First transaction with rows that exceeds the limits.

    Attributes:
        is_first: whether no transaction with rows is before it.
    """

    start: RelayLocation
    end: RelayLocation
    is_first: bool


class CountedGroups:
    """Counts of one query.

    Attributes:
        rows: the counted rows that no batch has taken yet.
        transactions: the counted transactions with rows that no batch has taken yet.
    """

    def __init__(self, tables: SelectedTables) -> None:
        self._tables = tables
        self._log: RelayLog | None = None
        self._begin = self.end = RelayLocation(0, 0)
        self._prepared: Prepared = ()  # open at `end`
        self._pieces: list[Ints] = []  # columns _FILE, _START, _END, _ROWS; one row for each transaction with rows

    @property
    def rows(self) -> int:
        return sum(int(piece[:, _ROWS].sum()) for piece in self._pieces)

    @property
    def transactions(self) -> int:
        return sum(map(len, self._pieces))

    def begin_at(self, log: RelayLog, place: OffsetPlace) -> None:
        """Drop the counts before `place`, or all of them if the log is another one or `place` is outside the counts.

        If the place is not exact, the count begins at the place after which all groups of the batch lie.
        """
        start = place.reached
        if log is not self._log or not self._begin <= start <= self.end:
            self._log, self._pieces, self.end = log, [], start
            self._prepared = place.prepared
            if not place.exact:
                _, self._prepared = follow(log, [(place.scan_from, start)], place.prepared)
        self._begin = start
        left = (piece[_is_after(piece, start)] for piece in self._pieces)
        self._pieces = [piece for piece in left if len(piece)]

    def extend(self, end: RelayLocation, *, rows: int | None, groups: int | None) -> None:
        """Continue counting until there are `rows` rows or `groups` groups (at most MAX_GROUPS), or up to `end`.

        Raises:
            DataLossError: groups before `end` were purged.
            ProtocolError: the bytes are damaged.
        """
        if self._log is None or end <= self.end:
            return
        total, number, most = self.rows, self.transactions, min(groups or MAX_GROUPS, MAX_GROUPS)
        for part in self._log.ranges(self.end, end, COUNT_BYTES):
            if (rows is not None and total >= rows) or number >= most:
                return
            piece = self._count(part)
            total, number = total + int(piece[:, _ROWS].sum()), number + len(piece)
        self.end = max(self.end, end)

    def excess(self, rows: int | None, transactions: int | None) -> Excess | None:
        """Return the first counted transaction that exceeds the limits; None if there is none."""
        groups = self._joined()
        first = len(groups) if transactions is None else min(transactions, len(groups))
        if rows is not None:
            first = min(first, int(np.searchsorted(groups[:, _ROWS].cumsum(), rows, side="right")))
        if first == len(groups):
            return None
        file, start, end, _ = groups[first].tolist()
        return Excess(RelayLocation(file, start), RelayLocation(file, end), is_first=first == 0)

    def _count(self, part: RelayRange) -> Ints:
        from replica.rows.decode.decode import (  # imports pyarrow, which only queries that count rows need here
            count_group,
            count_rows,
        )
        from streaming_source.rows.statements import DdlRows

        number = relay_number(Path(part.path))
        start, end = RelayLocation(number, part.start), RelayLocation(number, part.end)
        assert self._log is not None, "what is counted belongs to a log"  # noqa: S101
        (needs,), self._prepared = follow(self._log, [(start, end)], self._prepared)
        data = MappedRange(*part, carried=tuple(MappedRange(*group.bytes) for group in needs.carried))
        mapped, carried = MappedRelayRange(part), data.carried_groups()
        content = mapped.data
        if len(content) > LARGE_BYTES and not carried:
            groups, counts = count_group(
                content, self._tables, checksum=part.checksum, on_progress=mapped.release_before
            )
        else:
            groups, counts = count_rows(content, self._tables, checksum=part.checksum, carried=carried)
        if self._tables.include_ddl:
            statements = DdlRows(self._tables, content, checksum=part.checksum, carried=carried)
            statements.find(groups)
            counts += statements.counts()
        found = np.flatnonzero(counts)
        piece = np.column_stack((np.full(len(found), number), groups.start[found], groups.end[found], counts[found]))
        piece[:, [_START, _END]] += part.start
        if len(piece):
            self._pieces.append(piece)
        if len(self._pieces) > MAX_PIECES:
            self._joined()
        self.end = end
        return piece

    def _joined(self) -> Ints:
        joined = np.concatenate([np.empty((0, 4), np.int64), *self._pieces])
        self._pieces = [joined]
        return joined


def _is_after(groups: Ints, place: RelayLocation) -> npt.NDArray[np.bool_]:
    """Return a mask of the groups that end after a place."""
    files = groups[:, _FILE]
    return (files > place.file) | ((files == place.file) & (groups[:, _END] > place.offset))
