"""A question to a server over a connection of its own, asked again where the connection is lost or an error passes.

In: how a connection is opened, a question, how long it is tried. Out: the answer. Every other error is the answer.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import tenacity

from replica.snapshot.errors import passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.handshake.registration import Rows, Steps
    from replica.protocol.gtid import GtidPosition
    from replica.snapshot.connection.result_stream import ResultStream

POLL_S: Final = 0.2
"""How long is waited between two tries: a server that restarts refuses at once."""

_Result = TypeVar("_Result")
Answer = TypeVar("Answer")
Connection = TypeVar("Connection", bound="SnapshotConnection")


class Asked(Protocol):
    """A connection that answers small questions."""

    def rows(self, sql: str, arguments: tuple[str, ...] = ()) -> Rows: ...

    def run(self, steps: Steps[_Result]) -> _Result: ...


class SnapshotConnection(Asked, Protocol):
    """A connection that reads tables, as a chunk needs it."""

    def begin_snapshot(self) -> GtidPosition: ...

    def position(self) -> GtidPosition: ...

    def select(self, sql: str) -> ResultStream: ...

    def end_snapshot(self) -> None: ...

    def close(self) -> None: ...


def asked(connect: Callable[[], Connection], question: Callable[[Connection], Answer], patience_s: float) -> Answer:
    """Return what a question returns of a connection.

    Raises:
        DisconnectedError: no server could be asked for so long.
        ReplicaError: whatever connecting or the question raise.
    """

    def once() -> Answer:
        with closing(connect()) as connection:
            return question(connection)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        wait=tenacity.wait_fixed(POLL_S),
        stop=tenacity.stop_after_delay(patience_s),
        reraise=True,
    )
    return retrying(once)
