"""Row images encoded as the events of one binlog transaction, which tasks read like a part of the relay log.

`rows_events` yields WRITE_ROWS events for a block, and `begin_events`, `end_statement` and `end_event` encode the
events around them. The transaction has the GTID and time of the batch position. The events have no checksum, because
the manifest of a batch has checksums of its files.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.protocol.constants import HEADER_LENGTH, ChecksumAlgorithm, EventType, GtidFlag
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.gtid import Gtid
from replica.protocol.header import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.snapshot.rows.row_block import RowBlock

EVENT_BYTES: Final = 1 << 20
"""Bytes of images in one event. Servers write 8 KB by default, but larger events cost the decoder less per row."""
_STMT_END: Final = 1  # STMT_END_F of Rows_log_event (log_event.h)
_GTID_BODY: Final = 19
"""GTID_HEADER_LEN of log_event.h; decoders refuse a shorter body."""
_WIDE: Final = 251
_ID_BYTES: Final = 6


class LastTransaction(NamedTuple):
    """Transaction whose GTID and time the rows get: the last one before their position. `time`: commit time in seconds
    since 1970.
    """

    gtid: Gtid = Gtid(0, 0, 0)
    time: int = 0


class WrittenRows(NamedTuple):
    """WRITE_ROWS event that is written to a file: the bytes before the images, and the images."""

    head: bytes
    images: memoryview
    rows: int

    @property
    def size(self) -> int:
        """Bytes of the whole event."""
        return len(self.head) + len(self.images)


def begin_events(transaction: LastTransaction, maps: list[bytes]) -> bytes:
    """Encode the GTID event and a TABLE_MAP event for each body; the table ids are 1, 2, ... in order."""
    gtid = transaction.gtid
    body = struct.pack("<QIB", gtid.seq_no, gtid.domain_id, GtidFlag.TRANSACTIONAL).ljust(_GTID_BODY, b"\0")
    events = [_event(EventType.GTID, body, transaction)]
    for table_id, table_map in enumerate(maps, 1):
        events.append(_event(EventType.TABLE_MAP, _id(table_id) + table_map[_ID_BYTES:], transaction))
    return b"".join(events)


def end_event(transaction: LastTransaction) -> bytes:
    """Encode the XID event."""
    return _event(EventType.XID, bytes(8), transaction)


def rows_events(block: RowBlock, table_id: int, transaction: LastTransaction) -> Iterator[WrittenRows]:
    """Yield the events of a block's rows in order; none of them ends the statement."""
    ends = block.ends
    first, start = 0, 0
    while first < block.rows:
        last = max(first + 1, int(np.searchsorted(ends, start + EVENT_BYTES, side="right")))
        end = int(ends[last - 1])
        images = np.ascontiguousarray(block.images[start:end]).data
        yield WrittenRows(
            rows_head(table_id, block.width, end - start, transaction, left_out=block.left_out), images, last - first
        )
        first, start = last, end


def end_statement(table_id: int, width: int, transaction: LastTransaction) -> bytes:
    """Encode a WRITE_ROWS event without rows that ends the statement."""
    return rows_head(table_id, width, 0, transaction, flags=_STMT_END)


def rows_head(
    table_id: int,
    width: int,
    size: int,
    transaction: LastTransaction,
    *,
    flags: int = 0,
    left_out: tuple[int, ...] = (),
) -> bytes:
    """Encode the part of a WRITE_ROWS event before its images.

    Args:
        table_id: Table id of the event's TABLE_MAP.
        width: Number of columns of the table map.
        size: Bytes of the images.
        transaction: Transaction of the event, for its time and server id.
        flags: Flags of Rows_log_event (log_event.h).
        left_out: Numbers of the columns that the images omit.
    """
    packed = bytes((width,)) if width < _WIDE else b"\xfc" + struct.pack("<H", width)
    present = (1 << width) - 1 - sum(1 << number for number in left_out)
    bitmap = present.to_bytes((width + 7) // 8, "little")
    fixed = _id(table_id) + struct.pack("<H", flags) + packed + bitmap
    length = HEADER_LENGTH + len(fixed) + size
    return HEADER.pack(transaction.time, EventType.WRITE_ROWS_V1, transaction.gtid.server_id, length, 0, 0) + fixed


def _id(table_id: int) -> bytes:
    return table_id.to_bytes(_ID_BYTES, "little")


def _event(kind: EventType, body: bytes, transaction: LastTransaction) -> bytes:
    return encode_event(
        kind,
        body,
        server_id=transaction.gtid.server_id,
        checksum=ChecksumAlgorithm.NONE,
        timestamp=transaction.time,
    )
