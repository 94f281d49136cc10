"""Columns that the images of a range leave out, as lists of names per row.

`AbsentColumns` makes the ListArrays of a `ChangeBatch`, one per side; None if all images are whole. A kernel numbers
the rows events by table map and bitmap once per range, so Python handles each distinct bitmap once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from replica.native.arrays import address
from replica.protocol.wire import is_set
from replica.rows.decode.kernels.kernel_absent import number_choices
from replica.rows.scan.records import EventRecord
from replica.rows.types.arrow_arrays import array_of, array_of_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.rows.scan.scan import Scan

NAMES: Final = pa.list_(pa.string())


class AbsentColumns:
    """The lists of one range. `names(slot)` returns the output name of each wire column of a slot."""

    def __init__(self, found: Scan, names: Callable[[int], Sequence[str | None]]) -> None:
        self._found = found
        self._names = names
        self.any = not found.events["whole"].all()  # if False, callers skip the other methods
        self._choices: dict[str, tuple[npt.NDArray[np.int32], list[list[str] | None]]] = {}

    def before(self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that the before images of these rows lack.

        Args:
            events: int32 event number per row.
            rows: Mask of the rows that have a before image; other rows are NULL.

        Returns:
            None if no image lacks a column.
        """
        return self._lists(events, rows, np.zeros(len(rows), np.bool_))

    def after(self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that the after images of these rows lack; the image of an INSERT is an after image."""
        return self._lists(events, rows, rows)

    def flat(self, events: npt.NDArray[np.int32], second: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that each row's single image lacks; `second` marks the after images of updates."""
        return self._lists(events, np.ones(len(second), np.bool_), second)

    def _lists(
        self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]
    ) -> pa.ListArray | None:
        before, before_names = self._of("before")
        after, after_names = self._of("after")  # events with one image per row have one bitmap
        taken = np.where(second, after[events] + len(before_names), before[events])
        taken[~rows | (np.where(second, after[events], before[events]) < 0)] = -1
        names = [*before_names, *after_names]
        partial = np.array([*(name is not None for name in names), False], np.bool_)
        if not partial[taken].any():
            return None
        return array_of_values(names, NAMES).take(array_of(taken, taken < 0))

    def _of(self, field: str) -> tuple[npt.NDArray[np.int32], list[list[str] | None]]:
        """Return the choice number of each event, -1 for whole images, and the missing names of each choice."""
        if field not in self._choices:
            events = self._found.events
            numbers, firsts = np.empty(len(events), np.int32), np.empty(len(events), np.int32)
            table = np.zeros(1 << (2 * len(events)).bit_length(), np.int32)
            count = number_choices(
                address(self._found.data),
                address(events),
                len(events),
                EventRecord.FIELDS[field].offset,
                address(numbers),
                address(table),
                len(table) - 1,
                address(firsts),
            )
            self._choices[field] = numbers, [self._missing(int(event), field) for event in firsts[:count]]
        return self._choices[field]

    def _missing(self, event: int, field: str) -> list[str] | None:
        record = self._found.events[event]
        width, start = int(record["width"]), int(record[field])
        # Read by address, because the bitmaps of rewritten events are outside the range.
        bitmap = ctypes.string_at(address(self._found.data) + start, (width + 7) // 8)
        if all(is_set(bitmap, i) for i in range(width)):
            return None
        names = self._names(int(record["slot"]))
        return [name for i, name in enumerate(names) if name is not None and not is_set(bitmap, i)]
