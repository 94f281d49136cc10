"""Read relay files with the kernel that wrote them: bare events without packets.

`group_ends` returns every group end of a short range, for lookups between two index entries. `scan_file` scans a whole
file in constant memory and returns the end of its last complete, undamaged group, for recovery.
"""

from __future__ import annotations

import os
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.errors import ConfigError
from replica.native.kernel_group import NO_GROUP
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.directory.head import Snapshot
from replica.relay_log.files.index import SEALED_FLAG, IndexEntry
from replica.relay_log.kernels import stream_record
from replica.relay_log.kernels.kernel_deframe import MAX_ENTRY_BYTES, UNORDERED_FLAG, WINDOW_BYTES, XA_FLAG, deframe
from replica.relay_log.kernels.stream_record import COUNTERS, MAX_DOMAINS, Cell, DomainRow, GroupEnd
from replica.relay_log.location import RelayHead, RelayLocation

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from replica.native.record import Records
    from replica.protocol.gtid import Highest
    from replica.relay_log.files.lookup import FileHead
# One `StreamState` belongs to one stream of bytes: the live stream of a `RelayWriter`, or one scan of a relay file.


# The kernel stops when less than one entry with the maximum number of domains fits.
INDEX_ARENA_BYTES = 4 * MAX_ENTRY_BYTES

# Events up to this size are collected in the buffer and processed in one pass; larger ones are streamed to save memory.
STREAM_ABOVE_BYTES = 256 << 10
NEVER = 1 << 62


class StreamState:
    """State of one stream. `state[Cell.group]` reads a cell.

    Args:
        position: GTID position at the start.
        framed: Whether the bytes have packet headers.
        ends: Maximum number of group ends to return at a time, 0 for none.
        counted: State whose counters continue.
        highest: For each domain, the highest number after which its numbers went back.
    """

    def __init__(
        self,
        position: GtidPosition,
        *,
        framed: bool,
        ends: int = 0,
        counted: StreamState | None = None,
        highest: Highest | None = None,
    ) -> None:
        self._area: NDArray[np.int64] = np.zeros(1, Cell.dtype).view(np.int64)
        self._cells = self._area.data
        self._ends: Records = np.zeros(ends, GroupEnd.dtype)
        self._domains = np.zeros(MAX_DOMAINS, DomainRow.dtype)
        self._highest = np.zeros(MAX_DOMAINS, np.uint64)
        self._index: NDArray[np.uint8] = np.zeros(INDEX_ARENA_BYTES, np.uint8)
        self._window: NDArray[np.uint8] = np.zeros(WINDOW_BYTES, np.uint8)
        self._index_bytes = self._index.data
        self._domain_bytes = self._domains.view(np.uint8).data
        self._address = self._area.ctypes.data
        self[Cell.window], self[Cell.domain_table] = self._window.ctypes.data, self._domains.ctypes.data
        self[Cell.highest_table] = self._highest.ctypes.data
        self[Cell.index_arena], self[Cell.index_arena_bytes] = self._index.ctypes.data, self._index.size
        self[Cell.ends_table], self[Cell.ends_rows] = self._ends.ctypes.data, ends
        self[Cell.framed], self[Cell.checksum] = int(framed), -1
        self[Cell.stream_above] = STREAM_ABOVE_BYTES
        self[Cell.roll_at] = NEVER
        if counted is not None:
            for slot in COUNTERS:
                self[slot] = counted[slot]
        self.seed(position, highest or {})

    def seed(self, position: GtidPosition, highest: Highest) -> None:
        """Set the domain table to `position`; its rows are in the order of the domains."""
        rows = [tuple(gtid) for gtid in position]
        if len(rows) > MAX_DOMAINS:
            raise ConfigError(
                f"The position has {len(rows)} GTID domains; at most {MAX_DOMAINS} are possible.",
                hint="Each domain is kept in every position: use a few, one for each independent source.",
            )
        self._domains[: len(rows)] = rows
        self._highest[: len(rows)] = [highest.get(gtid.domain_id, 0) for gtid in position]
        self[Cell.domains], self[Cell.last_domain] = len(rows), 0

    def reset_stream(self, *, semi_sync: bool, strict: bool) -> None:
        """Start a new connection without open packet, event or group; its first event says whether there are CRCs."""
        for slot in range(Cell.packet_left, Cell.group + 8, 8):
            self[slot] = 0
        self[Cell.semi_sync], self[Cell.checksum], self[Cell.strict] = int(semi_sync), -1, int(strict)
        self[Cell.offset] = self[Cell.committed_offset]
        self[Cell.ack_position] = 0

    def run(self, begin: int, end: int) -> int:
        """Run the kernel over [begin, end); the kept bytes are in [begin, state[Cell.out]) afterwards."""
        self[Cell.out], self[Cell.committed_out] = begin, 0
        return deframe(self._address, begin, end)

    def discard_group(self) -> None:
        """Drop the open group, as if its bytes had never arrived."""
        self[Cell.group] = NO_GROUP
        self[Cell.offset] = self[Cell.committed_offset]
        self[Cell.discarded] += 1

    def position(self) -> GtidPosition:
        """Return the position after the last complete group."""
        rows: list[tuple[int, int, int]] = self._domains[: self[Cell.domains]].tolist()
        return GtidPosition(tuple(Gtid(*row) for row in rows))

    def highest(self) -> dict[int, int]:
        """Return, for each domain whose numbers went back, the highest number after which they did."""
        count = self[Cell.domains]
        rows = zip(self._domains["domain"][:count].tolist(), self._highest[:count].tolist(), strict=True)
        return {domain: number for domain, number in rows if number}

    def domain_bytes(self) -> bytes:
        return bytes(self._domain_bytes[: self[Cell.domains] * DomainRow.BYTES])

    def snapshot(self, file: int, primary_file: str) -> Snapshot:
        """Return the end of the last complete group as the head of the log."""
        return Snapshot(
            file,
            self[Cell.committed_offset],
            primary_file,
            self[Cell.committed_position],
            self[Cell.committed_timestamp],
            self.domain_bytes(),
        )

    def sealed_entry(self) -> IndexEntry:
        """Return the sealing entry of a file that ends with the last complete group."""
        return IndexEntry(
            self[Cell.committed_offset],
            self[Cell.committed_position],
            self[Cell.committed_timestamp],
            SEALED_FLAG | UNORDERED_FLAG * self[Cell.unordered] | XA_FLAG * self[Cell.xa],
            self[Cell.last_domain],
            self.domain_bytes(),
        )

    def take_index(self) -> memoryview:
        """Return the index entries since the last call, a view that is valid until the next run."""
        fill = self[Cell.index_fill]
        self[Cell.index_fill] = 0
        return self._index_bytes[:fill]

    def take_ends(self) -> Records:
        """Return a copy of the group ends since the last call, as GroupEnd records."""
        fill = self[Cell.ends_fill]
        self[Cell.ends_fill] = 0
        return self._ends[:fill].copy()

    def __getitem__(self, slot: int) -> int:
        return self._cells[slot >> 3]

    def __setitem__(self, slot: int, value: int) -> None:
        self._cells[slot >> 3] = value


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
        if reason != stream_record.ENDS_FULL:
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
            cursor, reason = base, stream_record.INDEX_FULL
            while reason == stream_record.INDEX_FULL:
                reason = state.run(cursor, base + fill)
                index += state.take_index()
                cursor = state[Cell.cursor]
            if reason != stream_record.NEED_BYTES:
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
