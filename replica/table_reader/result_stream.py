"""The rows of one SELECT as the bytes of their packets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class RowStretch(NamedTuple):
    """A run of rows of a result of the binary protocol, as they were received.

    `data[start:end]` are whole packets, each the 4 bytes of its header and the payload of one row, if not `joined`;
    else the payload of exactly one row, without headers: one that was longer than a packet can be. The memory is used
    again for the next one.
    """

    data: npt.NDArray[np.uint8]
    start: int
    end: int
    joined: bool
