"""Run of a kernel that walks row images, over a worklist of rows events; compressed images are rewritten first.

The kernel writes its results into an int64 array. Images that it cannot walk raise an error with offset and column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replica.native.arrays import address
from replica.rows.decode import records as d
from replica.rows.decode.faults import run_fault
from replica.rows.decode.images.images import Arena, PlainImages

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan


def run_over_images(
    kernel: Callable[[int, int, int, int, int, int, int], int],
    found: Scan,
    slots: SlotTable,
    work: npt.NDArray[np.uint32],
    results: npt.NDArray[np.int64],
    *,
    walk_only: bool,
) -> None:
    """Run `kernel(data, events, work, work_size, slots, results, run)` over the worklist.

    Args:
        kernel: The compiled function.
        found: The scan of the range.
        slots: The tables of its slots.
        work: uint32 numbers of rows events.
        results: int64 array that the kernel writes.
        walk_only: True if the kernel uses only the lengths of values.

    Raises:
        ProtocolError: Images that do not fit their table map, or cannot be inflated.
    """
    slots.load(found, work, walk_only=walk_only)
    images = PlainImages(found, slots, work, Arena(), walk_only=walk_only)
    found = images.found
    run = np.zeros((), d.RunState.dtype)
    done = 0
    while done < len(work):
        part = work[done : images.advance()]
        if not len(part) and images.fault is not None:
            raise images.fault.error
        done += len(part)
        status = kernel(
            address(found.data),
            address(found.events),
            address(part),
            len(part),
            address(slots.records),
            address(results),
            address(run),
        )
        if status != d.DONE:
            raise run_fault(status, run, found, slots)
