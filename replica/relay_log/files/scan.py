"""Read relay files with the kernel that wrote them: bare events without packets.

`group_ends` returns every group end of a short range, for lookups between two index entries. `scan_file` scans a whole
file in constant memory and returns the end of its last complete, undamaged group, for recovery.
"""

from __future__ import annotations

import os
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.files.state import StreamState
from replica.relay_log.kernels import stops
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import RelayHead, RelayLocation

if TYPE_CHECKING:
    from pathlib import Path

    from replica.native.record import Records
    from replica.relay_log.files.file_head import FileHead

SCAN_BYTES = 4 << 20  # bytes per read of recovery; at least an event that is not streamed
_ENDS = 2048  # a group has at least 65 bytes, so 64 KB contain fewer groups


class ScannedFile(NamedTuple):
    """Result of a scan. `end`: offset after the last complete group; `entries`: bytes of the index up to there."""

    end: int
    primary_position: int
    timestamp: int
    position: GtidPosition
    groups: int
    last_domain: int
    unordered: bool
    xa: bool  # whether a group after the last entry is an XA group
    highest: dict[int, int]  # domain -> highest number after which its numbers went back (order.py)
    domains: bytes
    entries: bytes


def group_ends(path: Path, begin: int, end: int, *, checksum: bool, primary_position: int) -> Records:
    """Return the group ends in (begin, end] as GroupEnd records; `begin` is a group end or the start of the data."""
    buffer = np.empty(end - begin, np.uint8)
    with path.open("rb") as file:
        size = os.preadv(file.fileno(), [buffer.data], begin)
    state = _file_state(GtidPosition(), begin, primary_position, checksum=checksum, ends=_ENDS)
    address = cursor = buffer.ctypes.data
    found = []
    while True:
        reason = state.run(cursor, address + size)
        found.append(state.take_ends())
        if reason != stops.ENDS_FULL:
            return np.concatenate(found)
        cursor = state[Cell.cursor]


def position_after(position: GtidPosition, ends: Records) -> GtidPosition:
    """Return the position after the groups of `ends`, if `position` is the position before them."""
    last = {gtid.domain_id: gtid for gtid in position}
    last.update({gtid.domain_id: gtid for gtid in end_gtids(ends)})
    return GtidPosition(tuple(last.values()))


def head_at(base: RelayHead, ends: Records, row: int) -> RelayHead:
    """Return the `RelayHead` of the group end in a row; `base` is the start of the first of these groups."""
    end = ends[row]
    return RelayHead(
        RelayLocation(base.location.file, int(end["offset"])),
        position_after(base.position, ends[: row + 1]),
        BinlogPosition(base.primary.file, int(end["position"])),
        int(end["timestamp"]),
    )


def end_gtids(ends: Records) -> list[Gtid]:
    """Return the GTIDs of group ends, whose table stores the unsigned 64-bit sequence numbers as signed."""
    columns = ends["domain"].tolist(), ends["server"].tolist(), ends["sequence"].view(np.uint64).tolist()
    return list(starmap(Gtid, zip(*columns, strict=True)))


def scan_file(path: Path, head: FileHead) -> ScannedFile:
    """Scan `path` from the start of its data, with every checksum, up to the first incomplete or damaged group."""
    state = _file_state(head.position, head.data_start, head.primary.position, checksum=head.checksum)
    buffer = np.empty(SCAN_BYTES, np.uint8)
    view, base = buffer.data, buffer.ctypes.data
    index = bytearray()
    offset, fill = head.data_start, 0
    with path.open("rb") as file:
        while size := os.preadv(file.fileno(), [view[fill:]], offset):
            offset += size
            fill += size
            cursor, reason = base, stops.INDEX_FULL
            while reason == stops.INDEX_FULL:
                reason = state.run(cursor, base + fill)
                index += state.take_index()
                cursor = state[Cell.cursor]
            if reason != stops.NEED_BYTES:
                break
            used = cursor - base
            view[: fill - used] = view[used:fill]
            fill -= used
    return ScannedFile(
        state[Cell.committed_offset],
        state[Cell.committed_position],
        state[Cell.committed_timestamp],
        state.position(),
        state[Cell.groups],
        state[Cell.last_domain],
        bool(state[Cell.unordered]),
        bool(state[Cell.xa]),
        state.highest(),
        state.domain_bytes(),
        bytes(index),
    )


def _file_state(
    position: GtidPosition, offset: int, primary_position: int, *, checksum: bool, ends: int = 0
) -> StreamState:
    state = StreamState(position, framed=False, ends=ends)
    state[Cell.checksum] = int(checksum)
    for slot in (Cell.offset, Cell.committed_offset, Cell.last_entry):
        state[slot] = offset
    state[Cell.position] = state[Cell.committed_position] = primary_position
    return state
