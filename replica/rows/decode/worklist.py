"""Worklist of a decode kernel: the selected rows events, and the events whose rows ordinals must count.

`worklist` returns event numbers, and how many bytes of each event's images to read. In each group the list ends with
the last selected row, so that the kernel can mark the transaction's last row. A group without delivered rows is not in
the list. Unchanged updates of a table that skips them are not selected; `worklist` finds such updates by comparing
their images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.rows.decode.images import run_over_images
from replica.rows.decode.kernels.kernel_images import find_changes

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.decode.open_rows import OpenRows
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan

ALL: Final = (1 << 63) - 1
"""Length of images that are read to their end."""


class Worklist(NamedTuple):
    """A worklist.

    Attributes:
        events: uint32 numbers of rows events.
        lengths: int64 per event of the range, the bytes of images to read; None for all.
    """

    events: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64] | None = None


def worklist(
    found: Scan, slots: SlotTable, groups: npt.NDArray[np.bool_] | None = None, open_rows: OpenRows | None = None
) -> Worklist:
    """List the rows events to process.

    Args:
        found: The scan of the range.
        slots: The tables of its slots.
        groups: Per group of the range, True if its rows are selected; None if all are.
        open_rows: Decides which rows of partly delivered tables are selected.

    Raises:
        PrerequisiteError: Images lack columns that `open_rows` requires.
        ProtocolError: Images that must be compared do not fit their table map.
    """
    selected = slots.selects(found.events)
    group = found.events["group"]
    if groups is not None:
        selected &= groups[group]
    if slots.filtered:
        delivering = np.zeros(len(found.groups), np.bool_)
        delivering[group[selected & slots.delivers(found.events)]] = True
        selected &= delivering[group]
    if slots.skips or (open_rows is not None and open_rows.opened.any()):
        return _until_last_change(found, slots, selected, open_rows)
    return Worklist(_counted(found, selected))


def selecting(found: Scan, slots: SlotTable) -> npt.NDArray[np.bool_]:
    """Mark the rows events with at least one selected row (a mask over the events of the range).

    Unchanged updates do not count, see the module's description.
    """
    selected = slots.selects(found.events)
    updates = np.flatnonzero(slots.compares(found.events)).astype(np.uint32)
    if len(updates):
        selected[updates] &= _changed(found, slots, updates)[updates] > 0
    return selected


def _until_last_change(
    found: Scan, slots: SlotTable, selected: npt.NDArray[np.bool_], open_rows: OpenRows | None
) -> Worklist:
    """Return the worklist of these events, without unchanged updates and rows that are not delivered."""
    compared = slots.compares(found.events) & selected
    opened = np.zeros_like(selected) if open_rows is None else selected & open_rows.opened[found.events["slot"]]
    if not (compared | opened).any():
        return Worklist(_counted(found, selected))
    updates = np.flatnonzero(compared & ~opened).astype(np.uint32)
    lengths = _changed(found, slots, updates)
    if open_rows is not None and opened.any():
        open_rows.find(_counted(found, opened), lengths)
    measured = compared | opened
    selected[measured] &= lengths[measured] > 0
    events = _counted(found, selected)
    group = found.events["group"][events]
    inside = np.append(group[1:] == group[:-1], False) if len(events) else np.zeros(0, np.bool_)
    lengths[events[inside]] = ALL  # later rows need these ordinals: only the last event of a group is cut short
    return Worklist(events, lengths)


def _counted(found: Scan, selected: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """List the events of each group up to its last selected event."""
    if selected.all():
        return np.arange(len(selected), dtype=np.uint32)
    numbers = np.flatnonzero(selected)
    group = found.events["group"]
    last = np.full(len(found.groups), -1, np.int64)
    last[group[numbers]] = numbers  # assigned in order: the last one remains
    return np.flatnonzero(np.arange(len(selected)) <= last[group]).astype(np.uint32)


def _changed(found: Scan, slots: SlotTable, updates: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return, per event of the range, the bytes of images up to its last changed row; 0 if no row changed."""
    lengths = np.full(len(found.events), ALL, np.int64)
    run_over_images(find_changes, found, slots, updates, lengths, walk_only=False)
    return lengths
