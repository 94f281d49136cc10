"""Scan of a range of relay log bytes: its event groups, rows events and distinct table maps, as records (records.py).

The range has whole event groups, and each event has a CRC32 trailer or none has; a FORMAT_DESCRIPTION event inside
declares what follows. A binlog file's four magic bytes may precede the events. A group's commit timestamp is the header
timestamp of the event that ends it (XID, COMMIT, the standalone QUERY), in seconds. The timestamp of the GTID event is
the start of the last statement instead.

Errors, each with the offset of the event:

- An unknown type without the flag IGNORABLE. Unknown events with the flag are counted in `skipped`.
- Events of servers before 5.1 (old LOAD DATA, rows version 0), INCIDENT (the primary lost events), an encrypted file.
- A rows event without its table map or outside a group, a ROLLBACK TO an unknown savepoint.
- A truncated event, a group without its end.

If a crash of the primary truncated a group, the next GTID precedes its end. The group's rows are dropped, and it counts
in `cut_groups`. Undone rows are dropped: all rows of a group that ends with ROLLBACK, and rows between a savepoint and
its ROLLBACK TO (savepoints.py).

`event_blocks` scans one group of any size in blocks, so that a transaction of 100 GB needs little memory. Its scans are
of the whole group, whose `events` are those of one block. A block ends after a number of rows events, or at the end of
a window; `maps` has all table maps up to there. Each block comes with the table maps of the running statement, which a
reader that continues after the block needs. A later ROLLBACK TO may undo a block. So at the first savepoint of the
group, the headers of its remaining events are searched for ROLLBACK TO, and no block has undone rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.native.arrays import address
from replica.protocol.constants import BINLOG_MAGIC, CHECKSUM_LENGTH, HEADER_LENGTH, TYPE_AT, EventType, event_name
from replica.rows.scan import records as s
from replica.rows.scan.expand import Expansion, expand
from replica.rows.scan.kernels.kernel_scan import scan_range
from replica.rows.scan.records import ActiveRecord, EventRecord, GroupRecord, MapRecord
from replica.rows.scan.savepoints import BlockSavepoints, RangeSavepoints
from replica.rows.scan.windows import window_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.scan.windows import Passed


def scan_fault(status: int, data: npt.NDArray[np.uint8], state: Records) -> ProtocolError:
    """Make the error from the kernel's state. Its offset is that of the event, from the start of `data`."""
    offset, kind = int(state["fault"]), int(state["detail"])
    if status in (s.SHORT_EVENT, s.OPEN_GROUP):
        what = "the bytes end inside an event" if status == s.SHORT_EVENT else "the last event group has no end"
        return TruncatedError(what, offset=offset, hint="The relay file is torn, or the range was cut wrongly.")
    if status in (s.UNKNOWN_EVENT, s.HISTORICAL, s.ENCRYPTED):
        text, hint = {
            s.UNKNOWN_EVENT: (
                f"event type {kind} is unknown and not marked as ignorable",
                "The server is newer than this replica, or the bytes are not a binlog.",
            ),
            s.HISTORICAL: (
                f"{event_name(kind)} is an event of servers before MySQL 5.1",
                "No later server writes it: the file was assembled from parts, or its bytes are damaged.",
            ),
            s.ENCRYPTED: ("the binlog file is encrypted", "Read it from the server, or with its key file."),
        }[status]
        return UnsupportedEventError(text, offset=offset, hint=hint)
    if status == s.INCIDENT:
        return ProtocolError(
            f"the primary lost events here (INCIDENT): {_incident(data, offset, int(state['trailer']))}",
            offset=offset,
            hint="Compare the tables with the primary, then start from a position after the incident.",
        )
    text = {
        s.OUTSIDE_GROUP: f"{event_name(kind)} is outside of an event group",
        s.NO_TABLE_MAP: "a rows event without its table map",
        s.BAD_EVENT: f"malformed event ({event_name(kind)})",
        s.TOO_MANY_MAPS: f"one statement maps more than {s.MAX_ACTIVE} tables",
    }[status]
    return ProtocolError(text, offset=offset)


def _incident(data: npt.NDArray[np.uint8], offset: int, trailer: int) -> str:
    """Return the number and message that the primary wrote into the INCIDENT event at `offset`."""
    length = int.from_bytes(data[offset + 9 : offset + 13].tobytes(), "little")
    body = data[offset + HEADER_LENGTH : offset + length - trailer].tobytes()
    number, message = int.from_bytes(body[:2], "little"), body[3 : 3 + body[2]] if len(body) > 2 else b""
    text = message.decode("utf-8", "replace")
    return f"incident {number}, {text!r}" if text else f"incident {number}, without a message"


# The system zeroes new pages, which takes as long as the scan itself. Arrays beyond KEPT_BYTES are not kept: after a
# large transaction they would occupy memory for the life of the process.


KEPT_BYTES: Final = 16 << 20
"""Maximal bytes kept per kind of record: twice what a range of 8 MB takes, which is the size that tasks read."""


class RecordMemory:
    """Kept arrays by the kind of their records."""

    def __init__(self) -> None:
        self._records: dict[str, Records] = {}

    def take(self, name: str, dtype: np.dtype[Any], count: int) -> Records:
        """Return `count` uninitialised records; earlier records of the same name are overwritten."""
        records = self._records.get(name)
        if records is None or len(records) < count:
            records = np.empty(count, dtype)
            if records.nbytes <= KEPT_BYTES:
                self._records[name] = records
        return records[:count]


Bytes: TypeAlias = "memoryview | bytes | bytearray | npt.NDArray[np.uint8]"

ID_AND_FLAGS: Final = 8  # bytes of a TABLE_MAP event before the table's definition

# Estimate for the first allocation; the arrays double when it is too small. A small transaction takes about 200 bytes.
BYTES_PER_RECORD: Final = 128
FIRST_RECORDS: Final = 64
FIRST_MAPS: Final = 1024  # some 80 KB; each doubling hashes all known maps again, in Python


@dataclass(frozen=True, slots=True)
class Scan:
    """Content of a range. `groups`, `events` and `maps` are GroupRecords, EventRecords and MapRecords."""

    data: npt.NDArray[np.uint8]
    groups: Records
    events: Records
    maps: Records
    trailer: int  # bytes of checksum after each event
    cut_groups: int
    xa_groups: int  # number of groups that prepare or complete an XA transaction
    skipped: dict[int, int]  # by event type, the number of unknown events that were skipped as IGNORABLE
    expansion: Expansion | None = None  # set if `data` is the expansion of the range
    is_mysql: bool = False  # MySQL wrote the range: its groups begin with other events

    def origin(self, offset: int) -> int:
        """Return the offset in the range given to `scan`; in an expansion, the offset of the outer event."""
        return offset if self.expansion is None else self.expansion.origin(offset)

    def table_map_body(self, slot: int) -> memoryview:
        """Return the body of a table map event, from the table id to the optional metadata, without its CRC."""
        content = int(self.maps["content"][slot])
        return self.data.data[content - ID_AND_FLAGS : content + int(self.maps["size"][slot])]


def as_bytes(data: Bytes) -> npt.NDArray[np.uint8]:
    """Return the same memory as a one-dimensional array of bytes."""
    array: npt.NDArray[np.uint8] = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError("a range is one contiguous run of bytes")
    return array


def scan(data: Bytes, *, checksum: bool) -> Scan:
    """Scan a whole range.

    A range with events that contain other events (a compressed MySQL transaction) is expanded first. Then `Scan.data`
    and all offsets are those of the expansion, and `Scan.origin` returns the offset in the given range.

    Args:
        data: The range.
        checksum: True if its events carry a CRC32 trailer, which is skipped, not verified.

    Raises:
        ProtocolError: An event that cannot be skipped; see the module's description.
    """
    found, error = scan_until(data, checksum=checksum)
    if error is not None:
        raise error
    return found


def scan_until(data: Bytes, *, checksum: bool, memory: RecordMemory | None = None) -> tuple[Scan, ProtocolError | None]:
    """Scan a range up to an event that cannot be skipped; return the groups before it, and the error.

    `memory` receives the records. The caller must have finished with the previous range that was scanned into it.
    """
    memory = memory or RecordMemory()
    buffer = as_bytes(data)
    found, error = _scan(buffer, None, memory, checksum=checksum)
    if not isinstance(error, _NeedsExpansionError):
        return found, error
    expansion = expand(buffer.data, checksum=checksum)
    found, error = _scan(expansion.data, expansion, memory, checksum=False)
    if isinstance(error, _NeedsExpansionError):
        return found, UnsupportedEventError(error.message, offset=expansion.origin(error.offset or 0))
    return found, error and relocated(error, expansion.origin(error.offset or 0))


def relocated(error: ProtocolError, offset: int) -> ProtocolError:
    """Make the same error with another offset."""
    message = error.placeless
    return type(error)(message, offset=offset, hint=error.hint)


class _NeedsExpansionError(ProtocolError):
    """The range has events that contain other events; never leaves this module."""


def _needs_expansion(state: Records) -> ProtocolError:
    name = event_name(int(state["detail"]))
    return _NeedsExpansionError(f"{name} inside of another event", offset=int(state["fault"]))


def _scan(
    buffer: npt.NDArray[np.uint8], expansion: Expansion | None, memory: RecordMemory, *, checksum: bool
) -> tuple[Scan, ProtocolError | None]:
    capacity = max(FIRST_RECORDS, len(buffer) // BYTES_PER_RECORD)
    groups = memory.take("groups", GroupRecord.dtype, capacity)
    events = memory.take("events", EventRecord.dtype, capacity)
    maps = np.empty(FIRST_MAPS, MapRecord.dtype)
    table = np.zeros(FIRST_MAPS * 4, np.int64)
    state = np.zeros((), s.ScanState.dtype)
    active = np.empty(s.MAX_ACTIVE, ActiveRecord.dtype)
    hints = np.zeros(s.HINTS, np.int64)
    savepoints = RangeSavepoints(buffer)
    state["position"] = len(BINLOG_MAGIC) if buffer[: len(BINLOG_MAGIC)].tobytes() == BINLOG_MAGIC else 0
    state["trailer"] = CHECKSUM_LENGTH if checksum else 0
    while True:
        status = scan_range(
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
            address(savepoints.records),
            len(savepoints.records),
        )
        n_groups, n_events, n_maps = (int(state[count]) for count in ("groups", "events", "maps"))
        if savepoints.resume(status, state, groups):
            continue
        if status != s.GROW:
            break
        if n_groups == len(groups):
            groups = doubled(groups)
        if n_events == len(events):
            events = doubled(events)
        if n_maps == len(maps):
            maps = doubled(maps)
            table = hash_table(maps["hash"][:n_maps], len(maps) * 4)
    error = savepoints.fault
    if status == s.NEEDS_EXPANSION:
        error = _needs_expansion(state)
    elif status not in (s.DONE, s.ROLLED_BACK):
        error = scan_fault(status, buffer, state)
    if error is not None:  # drop the events of the unfinished group
        n_events = int(np.searchsorted(events["group"][:n_events], n_groups))
    skipped = state["skipped"]
    found = Scan(
        data=buffer,
        groups=groups[:n_groups],
        events=events[:n_events],
        maps=maps[:n_maps],
        trailer=int(state["trailer"]),
        cut_groups=int(state["cut"]),
        xa_groups=int(state["xa"]),
        skipped={int(kind): int(skipped[kind]) for kind in np.flatnonzero(skipped)},
        expansion=expansion,
        is_mysql=n_groups > 0 and int(buffer[int(groups["start"][0]) + TYPE_AT]) != EventType.GTID,
    )
    return found, error


def doubled(records: Records) -> Records:
    larger = np.empty(len(records) * 2, records.dtype)
    larger[: len(records)] = records
    return larger


def hash_table(hashes: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    table = np.zeros(size, np.int64)
    for slot, hashed in enumerate(hashes.tolist()):
        place = hashed & (size - 1)
        while table[place]:
            place = (place + 1) & (size - 1)
        table[place] = slot + 1
    return table


BLOCK_EVENTS: Final = 1 << 16
"""Rows events of a block: 7 MB of records, if a window has that many events."""
_WINDOW_ENDS: Final = frozenset({s.DONE, s.SHORT_EVENT, s.OPEN_GROUP})  # results of a scan at the end of a window
_GROUPS: Final = 2  # the one group, and space for a second, which is an error


class EventBlock(NamedTuple):
    """One block.

    Attributes:
        found: The scan, with the rows events of the block.
        active: ActiveRecords of the table maps of the statement that runs at the end of the block.
        group_ended: True for the last block; then `found.groups` has the group's record.
    """

    found: Scan
    active: Records
    group_ended: bool


def event_blocks(
    data: Bytes, *, checksum: bool, block_events: int = BLOCK_EVENTS, on_progress: Passed | None = None
) -> Iterator[EventBlock]:
    """Yield the rows events of one group in blocks, in order.

    The blocks end early at an event that contains other events, and if a crash truncated the group.

    Args:
        data: The bytes of exactly one group.
        checksum: True if events carry a CRC32.
        block_events: Maximal number of rows events of a block.
        on_progress: Called with the offset of the block's end, when the next block is requested.

    Raises:
        ProtocolError: Everything that `scan` refuses, and bytes that are not one group.
    """
    buffer = as_bytes(data)
    groups = np.empty(_GROUPS, GroupRecord.dtype)
    maps = np.empty(FIRST_MAPS, MapRecord.dtype)
    table = np.zeros(FIRST_MAPS * 4, np.int64)
    state = np.zeros((), s.ScanState.dtype)
    active = np.empty(s.MAX_ACTIVE, ActiveRecord.dtype)
    hints = np.zeros(s.HINTS, np.int64)
    state["trailer"] = CHECKSUM_LENGTH if checksum else 0
    events = np.empty(block_events, EventRecord.dtype)
    savepoints = BlockSavepoints(buffer, checksum=checksum, on_progress=on_progress)
    begin, limit = 0, window_end(buffer, 0)
    while True:
        status = scan_range(
            *(address(buffer), limit, address(state)),
            *(address(groups), len(groups), address(events), len(events), address(maps), len(maps)),
            *(address(table), len(table) - 1, address(active), address(hints)),
            *(address(savepoints.records), len(savepoints.records)),
        )
        n_groups, n_events, n_maps = (int(state[count]) for count in ("groups", "events", "maps"))
        position = int(state["position"])
        if savepoints.resume(status, state, groups):
            continue
        if status == s.NEEDS_EXPANSION or (begin and state["cut"]):
            return
        if status in _WINDOW_ENDS and limit < len(buffer) and position > begin:
            status = s.GROW
        if status not in (s.GROW, s.DONE):
            raise scan_fault(status, buffer, state)
        if n_groups > 1 or (status == s.DONE and n_groups != 1):
            raise ProtocolError(f"{n_groups} event groups where one was expected")
        if status == s.GROW and n_maps == len(maps):
            maps = doubled(maps)
            table = hash_table(maps["hash"][:n_maps], len(maps) * 4)
            continue
        found = Scan(
            data=buffer,
            groups=groups[:n_groups],
            events=savepoints.kept(events[:n_events]),
            maps=maps[:n_maps],
            trailer=int(state["trailer"]),
            cut_groups=0,
            xa_groups=int(state["xa"]),
            skipped={},
        )
        yield EventBlock(found, active[: int(state["active"])], status == s.DONE)
        if on_progress is not None:
            on_progress(position)
        if status == s.DONE:
            return
        begin, limit = position, window_end(buffer, position)
        events = np.empty_like(events)  # the caller owns the previous block
        state["events"] = 0
        groups[n_groups]["first"] = 0
