"""Result of one SELECT as raw packets: the columns, then runs of rows until the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt

    from replica.protocol.packets.prepared import ResultColumn


class RowStretch(NamedTuple):
    """Run of rows of a binary protocol result, as received.

    If `joined` is False, `data[start:end]` holds whole packets: per row a header of 4 bytes and the payload. If
    `joined` is True, it holds the payload of exactly one row that was longer than a packet, without headers. The
    receiver owns the memory and reuses it for the next run.
    """

    data: npt.NDArray[np.uint8]
    start: int
    end: int
    joined: bool


class ResultStream:
    """Result of one statement; `stretches` yields its rows once.

    Args:
        columns: Column definitions from the server.
        take: Returns the next run of rows, or None at the end; raises the error that ends the result.
    """

    def __init__(self, columns: tuple[ResultColumn, ...], take: Callable[[], RowStretch | None]) -> None:
        self.columns = columns
        self._take = take

    def stretches(self) -> Iterator[RowStretch]:
        """Yield runs of rows until the end of the result; each run is valid until the next one.

        The caller must read the result to its end, or else the connection becomes unusable.

        Raises:
            ServerError: The statement failed midway; the connection accepts the next statement.
            DisconnectedError: The connection ended, or another thread closed it.
            ProtocolError: The received data is no row.
        """
        while (stretch := self._take()) is not None:
            yield stretch
