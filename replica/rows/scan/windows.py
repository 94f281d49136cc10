"""Walks over a range that is larger than the memory it may take: the end of a walk's next window, from event to event.

In: the bytes of a range, mapped, and the offset of an event. Out: the offset that a kernel is told as the range's end.
It stops before an event that goes on behind it, and the next window begins there. The owner of the memory is told what
has been passed, and gives the pages back (relay_log/mapped_range.py). A window without progress begins with an event
that is damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import TruncatedError
from replica.native.arrays import address
from replica.protocol.constants import HEADER_LENGTH
from replica.rows.scan.kernel_state import SearchState

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import numpy.typing as npt

    Passed: TypeAlias = "Callable[[int], object]"
    """What is told the offset up to which a walk has passed; of what lies before, few events are read again."""

WINDOW_BYTES: Final = 16 << 20
"""The size of a window: ranges of the usual size are walked in one go."""
_LENGTH_AT: Final = 9


def window_end(data: npt.NDArray[np.uint8], position: int) -> int:
    """Return the end of the window that begins at an event: WINDOW_BYTES on, or behind an event that is larger."""
    header = data[position : position + HEADER_LENGTH].tobytes()
    length = int.from_bytes(header[_LENGTH_AT : _LENGTH_AT + 4], "little")
    return min(len(data), position + max(WINDOW_BYTES, length))


def search(
    data: npt.NDArray[np.uint8],
    start: int,
    trailer: int,
    kernel: Callable[[int, int, int], int],
    passed: Passed | None = None,
) -> int:
    """Run `kernel(data, size, state)` over the events of `data` from `start` on; return how many it has found.

    Raises:
        TruncatedError: an event is cut short.
    """
    state = np.zeros((), SearchState.dtype)
    state["position"], state["trailer"] = start, trailer
    count, position = 0, start
    while position < len(data):
        count = kernel(address(data), window_end(data, position), address(state))
        if int(state["position"]) == position:
            raise TruncatedError("the bytes end inside an event", offset=position)
        position = int(state["position"])
        if passed is not None:
            passed(position)
    return count
