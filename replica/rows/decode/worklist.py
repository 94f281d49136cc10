"""The rows events of a range that a decode kernel goes through: the selected ones, and those that ordinals need
counted.

In: a scan with the tables of its slots, and optionally which groups are wanted at all. Out: numbers of rows events, and
how far the images of each are to be read. Per group the list ends with the last row that is selected, so that this one
is known as the last of its transaction; a group of which nothing is delivered is not in it. Updates that change nothing
count as not selected where a table leaves them out: they are found here first, by comparing images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.rows.decode.image_runs import run_over_images
from replica.rows.decode.kernel_unchanged import find_changes

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.decode.open_rows import OpenRows
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan

ALL: Final = (1 << 63) - 1
"""The length of images that are read to their end."""


class Worklist(NamedTuple):
    """A worklist. `events`: numbers of rows events; `lengths`: bytes of images to read of each event of the range,
    None: all.
    """

    events: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64] | None = None


def worklist(
    found: Scan, slots: SlotTable, groups: npt.NDArray[np.bool_] | None = None, open_rows: OpenRows | None = None
) -> Worklist:
    """List the rows events to go through; `groups`: per group of the range whether any of its rows are wanted.

    `open_rows` takes the list to find out which rows of tables that are delivered in part are selected.

    Raises:
        PrerequisiteError: images that lack what `open_rows` has to know.
        ProtocolError: images that do not fit their table map, where they have to be compared.
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
    """Mark the rows events that hold a row that is selected; updates that change nothing are not, as above."""
    selected = slots.selects(found.events)
    updates = np.flatnonzero(slots.compares(found.events)).astype(np.uint32)
    if len(updates):
        selected[updates] &= _changed(found, slots, updates)[updates] > 0
    return selected


def _until_last_change(
    found: Scan, slots: SlotTable, selected: npt.NDArray[np.bool_], open_rows: OpenRows | None
) -> Worklist:
    """Return the list of these events, less updates that change nothing, and rows that are not delivered."""
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
    lengths[events[inside]] = ALL  # rows behind them need their ordinals: only the last event of a group is cut short
    return Worklist(events, lengths)


def _counted(found: Scan, selected: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """List, per group, all events up to its last selected one."""
    if selected.all():
        return np.arange(len(selected), dtype=np.uint32)
    numbers = np.flatnonzero(selected)
    group = found.events["group"]
    last = np.full(len(found.groups), -1, np.int64)
    last[group[numbers]] = numbers  # assignment in order: the last one stays
    return np.flatnonzero(np.arange(len(selected)) <= last[group]).astype(np.uint32)


def _changed(found: Scan, slots: SlotTable, updates: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return, per event of the range, how many bytes of images lead up to its last changed row; 0 where no row
    changed.
    """
    lengths = np.full(len(found.events), ALL, np.int64)
    run_over_images(find_changes, found, slots, updates, lengths, walk_only=False)
    return lengths
