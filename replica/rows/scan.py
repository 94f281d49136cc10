"""A range of relay log bytes -> its event groups, rows events and distinct table maps, as numpy records (records.py).

The range holds whole events of whole event groups, each event with a CRC32 trailer or all without; a FORMAT_DESCRIPTION
event inside says how it goes on. A binlog file's four magic bytes may stand in front. The commit timestamp of a group
is the header timestamp of the event that ends it (XID, COMMIT, the standalone QUERY): the second in which it was
committed; the GTID event's own is the start of the last statement.

Refused, each with the offset of the event: an event type that is unknown and not flagged IGNORABLE, compressed rows,
rows of the ancient format, a rows event without its table map or outside a group, INCIDENT (the primary lost events),
an encrypted file, an event that ends too early, a group without its end. Groups that a crash of the primary cut short
(another GTID follows before their end) never happened: their rows are dropped and they are counted in `cut_groups`. A
group that ends with ROLLBACK stays, but its rows are dropped: they were undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, CHECKSUM_LENGTH
from replica.rows import kernel_scan
from replica.rows.records import EVENT_BYTES, GROUP_BYTES, MAP_BYTES, MAP_CONTENT, MAP_HASH, MAP_SIZE, WORD, column

if TYPE_CHECKING:
    import numpy.typing as npt

Records: TypeAlias = "npt.NDArray[np.int64]"
Bytes: TypeAlias = "memoryview | bytes | bytearray | npt.NDArray[np.uint8]"

ID_AND_FLAGS: Final = 8  # of a TABLE_MAP event, before what defines the table
# First guess of how dense a range is; the arrays double when it was wrong. A small transaction takes about 200 bytes.
BYTES_PER_RECORD: Final = 128
FIRST_RECORDS: Final = 64
FIRST_MAPS: Final = 64


@dataclass(frozen=True, slots=True)
class Scan:
    """What a range holds. Row i of `groups`/`events`/`maps` is laid out as GROUP_*/EVENT_*/MAP_* say."""

    data: npt.NDArray[np.uint8]
    groups: Records
    events: Records
    maps: Records
    trailer: int  # bytes of checksum after each event
    cut_groups: int

    def table_map_body(self, slot: int) -> memoryview:
        """The body of one table map event, from the table id to the optional metadata, without its CRC."""
        content = int(column(self.maps, MAP_CONTENT)[slot])
        return self.data.data[content - ID_AND_FLAGS : content + int(column(self.maps, MAP_SIZE)[slot])]


def as_bytes(data: Bytes) -> npt.NDArray[np.uint8]:
    """The same memory as a one-dimensional array of bytes."""
    array: npt.NDArray[np.uint8] = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError("a range is one contiguous run of bytes")
    return array


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def scan(data: Bytes, *, checksum: bool) -> Scan:
    """Scan a whole range; `checksum` says whether its events carry a CRC32 trailer (it is skipped, not verified)."""
    buffer = as_bytes(data)
    capacity = max(FIRST_RECORDS, len(buffer) // BYTES_PER_RECORD)
    groups = np.empty((capacity, GROUP_BYTES // WORD), np.int64)
    events = np.empty((capacity, EVENT_BYTES // WORD), np.int64)
    maps = np.empty((FIRST_MAPS, MAP_BYTES // WORD), np.int64)
    table = np.zeros(FIRST_MAPS * 4, np.int64)
    state = np.zeros(kernel_scan.STATE_WORDS, np.int64)
    active = np.empty((kernel_scan.MAX_ACTIVE, 2), np.int64)
    hints = np.zeros(kernel_scan.HINTS, np.int64)
    state[kernel_scan.POSITION // WORD] = (
        len(BINLOG_MAGIC) if buffer[: len(BINLOG_MAGIC)].tobytes() == BINLOG_MAGIC else 0
    )
    state[kernel_scan.TRAILER // WORD] = CHECKSUM_LENGTH if checksum else 0
    while True:
        status = kernel_scan.scan_range(
            address(buffer),
            len(buffer),
            address(state),
            address(groups),
            len(groups),
            address(events),
            len(events),
            address(maps),
            len(maps),
            address(table),
            len(table) - 1,
            address(active),
            address(hints),
        )
        n_groups, n_events, n_maps = (
            int(state[word // WORD]) for word in (kernel_scan.GROUPS, kernel_scan.EVENTS, kernel_scan.MAPS)
        )
        if status != kernel_scan.GROW:
            break
        if n_groups == len(groups):
            groups = _doubled(groups)
        if n_events == len(events):
            events = _doubled(events)
        if n_maps == len(maps):
            maps = _doubled(maps)
            table = _hash_table(column(maps, MAP_HASH)[:n_maps], len(maps) * 4)
    if status != kernel_scan.DONE:
        raise _error(status, int(state[kernel_scan.FAULT // WORD]), int(state[kernel_scan.DETAIL // WORD]))
    return Scan(
        data=buffer,
        groups=groups[:n_groups],
        events=events[:n_events],
        maps=maps[:n_maps],
        trailer=int(state[kernel_scan.TRAILER // WORD]),
        cut_groups=int(state[kernel_scan.CUT // WORD]),
    )


def _doubled(records: Records) -> Records:
    larger = np.empty((len(records) * 2, records.shape[1]), np.int64)
    larger[: len(records)] = records
    return larger


def _hash_table(hashes: Records, size: int) -> Records:
    table = np.zeros(size, np.int64)
    for slot, hashed in enumerate(hashes.tolist()):
        place = hashed & (size - 1)
        while table[place]:
            place = (place + 1) & (size - 1)
        table[place] = slot + 1
    return table


def _error(status: int, offset: int, kind: int) -> ProtocolError:
    if status in (kernel_scan.SHORT_EVENT, kernel_scan.OPEN_GROUP):
        what = (
            "the bytes end inside an event" if status == kernel_scan.SHORT_EVENT else "the last event group has no end"
        )
        return TruncatedError(what, offset=offset, hint="The relay file is torn, or the range was cut wrongly.")
    if status == kernel_scan.UNKNOWN_EVENT:
        return UnsupportedEventError(
            f"event type {kind} is unknown and not marked as ignorable",
            offset=offset,
            hint="The server is newer than this replica, or the bytes are no binlog.",
        )
    if status == kernel_scan.COMPRESSED:
        return UnsupportedEventError(
            f"compressed rows event (type {kind})",
            offset=offset,
            hint="Set log_bin_compress=OFF on the primary and start after the last compressed event.",
        )
    if status == kernel_scan.ENCRYPTED:
        return UnsupportedEventError("the binlog file is encrypted", offset=offset, hint="Read it from the server.")
    if status == kernel_scan.INCIDENT:
        return ProtocolError(
            "the primary lost events here (INCIDENT)",
            offset=offset,
            hint="Compare the tables with the primary, then start from a position after the incident.",
        )
    text = {
        kernel_scan.OUTSIDE_GROUP: f"event type {kind} stands outside an event group",
        kernel_scan.NO_TABLE_MAP: "a rows event without its table map",
        kernel_scan.BAD_EVENT: f"malformed event (type {kind})",
        kernel_scan.TOO_MANY_MAPS: f"one statement maps more than {kernel_scan.MAX_ACTIVE} tables",
    }[status]
    return ProtocolError(text, offset=offset)
