"""Rows that were read from tables, as ranges that tasks read like those of a relay log.

In: a part of a file of rows, the offset that they hold at. Out: the range, with the transaction that the rows hold
behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.protocol.gtid import Gtid
from streaming_source.rows.partition import MappedRange, ReadRows, Surroundings

if TYPE_CHECKING:
    from replica.snapshot.spool.batches import SpoolPart
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.rows.partition import CatalogChanges


def range_of(part: SpoolPart, end: SourceOffset, catalog: CatalogChanges = ()) -> MappedRange:
    """Return rows that were read, as a task reads them; they hold at the offset `end`."""
    gtid, timestamp = _last_transaction(end)
    return MappedRange(
        *(str(part.path), part.start, part.end, False),
        around=Surroundings(part.head, part.tail),
        catalog=catalog,
        read=ReadRows(gtid.domain_id, gtid.server_id, gtid.seq_no, timestamp, part.first_row, len(end.position) > 1),
    )


def _last_transaction(end: SourceOffset) -> tuple[Gtid, int]:
    """Return the transaction that rows hold behind which are as of an offset, and its time: seconds, 0 where no one
    knows.

    It is the same in every replay of a batch, because it is what the offset says of it. An offset before which no group
    was received names none; then it is the transaction of its first domain.
    """
    if end.last is not None:
        return end.last.gtid, end.last.time
    return next(iter(end.position), Gtid(0, 0, 0)), 0
