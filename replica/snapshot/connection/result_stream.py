"""The rows of one SELECT as the bytes of their packets: its columns first, then run after run until the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt

    from replica.protocol.packets.prepared import ResultColumn


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


class ResultStream:
    """The result of one statement, of which `stretches` gives the rows, once.

    Args:
        columns: what the server says of the columns.
        take: gives the next run of rows, None at the end; raises what ends the result otherwise.
    """

    def __init__(self, columns: tuple[ResultColumn, ...], take: Callable[[], RowStretch | None]) -> None:
        self.columns = columns
        self._take = take

    def stretches(self) -> Iterator[RowStretch]:
        """Yield the rows until the end of the result, each stretch good until the next one.

        A result has to be read to its end: its connection is of no more use otherwise.

        Raises:
            ServerError: the statement failed in the middle; the connection is good for the next one.
            DisconnectedError: the connection ended, or was closed by another thread.
            ProtocolError: what came is no row.
        """
        while (stretch := self._take()) is not None:
            yield stretch
