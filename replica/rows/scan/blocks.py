"""Scan of one event group of any size in blocks, so that a transaction of 100 GB needs little memory.

`event_blocks` yields scans of the whole group, whose `events` are those of one block. A block ends after a number of
rows events, or at the end of a window; `maps` has all table maps up to there. Each block comes with the table maps of
the running statement, which a reader that continues after the block needs. The errors are those of the scan.

A later ROLLBACK TO may undo a block. So at the first savepoint of the group, the headers of its remaining events are
searched for ROLLBACK TO, and no block has undone rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH
from replica.rows.scan.kernels import kernel_state as s
from replica.rows.scan.kernels.kernel_scan import scan_range
from replica.rows.scan.records import ActiveRecord, EventRecord, GroupRecord, MapRecord
from replica.rows.scan.savepoints import BlockSavepoints
from replica.rows.scan.scan import FIRST_MAPS, Scan, as_bytes, doubled, hash_table, scan_fault
from replica.rows.scan.windows import window_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.native.record import Records
    from replica.rows.scan.scan import Bytes
    from replica.rows.scan.windows import Passed

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
