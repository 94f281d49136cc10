"""Walks in windows over a range that is larger than the memory that the walk may use.

`search` runs a kernel over a mapped range, window by window. The kernel gets the end of a window as the end of the
range. It stops before an event that exceeds the window, and the next window begins at that event. After each window,
the owner of the memory may release its pages (relay_log/walks/ddl.py). A window without progress begins with a
damaged event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import TruncatedError
from replica.native.arrays import address
from replica.protocol.constants import HEADER_LENGTH
from replica.rows.scan.records import SearchState

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import numpy.typing as npt

    Passed: TypeAlias = "Callable[[int], object]"
    """Callback with the offset up to which a walk has passed; few events before that offset are read later."""

WINDOW_BYTES: Final = 16 << 20
"""Size of a window in bytes: a range of the usual size is walked in one window."""
_LENGTH_AT: Final = 9


def window_end(data: npt.NDArray[np.uint8], position: int) -> int:
    """Return the end of the window that begins at an event: WINDOW_BYTES later, or after a larger event."""
    header = data[position : position + HEADER_LENGTH].tobytes()
    length = int.from_bytes(header[_LENGTH_AT : _LENGTH_AT + 4], "little")
    return min(len(data), position + max(WINDOW_BYTES, length))


def search(
    data: npt.NDArray[np.uint8],
    start: int,
    trailer: int,
    kernel: Callable[[int, int, int], int],
    on_progress: Passed | None = None,
) -> int:
    """Run `kernel(data, size, state)` over the events of `data`, from `start` on; return the number of results.

    Raises:
        TruncatedError: An event is truncated.
    """
    state = np.zeros((), SearchState.dtype)
    state["position"], state["trailer"] = start, trailer
    count, position = 0, start
    while position < len(data):
        count = kernel(address(data), window_end(data, position), address(state))
        if int(state["position"]) == position:
            raise TruncatedError("the bytes end inside an event", offset=position)
        position = int(state["position"])
        if on_progress is not None:
            on_progress(position)
    return count
