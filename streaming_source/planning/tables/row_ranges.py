"""Snapshot rows as ranges that tasks read like those of a relay log.

`range_of` takes a part of a file of rows and the offset at which they hold.
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
    """Return snapshot rows in the form that a task reads. They hold at the offset `end`."""
    gtid, timestamp = _last_transaction(end)
    return MappedRange(
        *(str(part.path), part.start, part.end, False),
        around=Surroundings(part.head, part.tail),
        catalog=catalog,
        read=ReadRows(gtid.domain_id, gtid.server_id, gtid.seq_no, timestamp, part.first_row, len(end.position) > 1),
    )


def _last_transaction(end: SourceOffset) -> tuple[Gtid, int]:
    """Return the last transaction before an offset, and its time in seconds; 0 if the time is unknown.

    It comes from the offset, so it is the same in every replay of a batch. An offset without a received group does not
    name it; then the result is the transaction of its first domain.
    """
    if end.last is not None:
        return end.last.gtid, end.last.time
    return next(iter(end.position), Gtid(0, 0, 0)), 0
