"""Ask a server one question over a new connection, and retry after lost connections and transient errors.

`asked` opens the connection, runs the question and returns its answer. Every other error is raised at once.
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
"""Wait between two attempts in seconds. A server that restarts refuses connections at once."""

_Result = TypeVar("_Result")
Answer = TypeVar("Answer")
Connection = TypeVar("Connection", bound="SnapshotConnection")


class Asked(Protocol):
    """Connection that answers small queries."""

    def rows(self, sql: str, arguments: tuple[str, ...] = ()) -> Rows: ...

    def run(self, steps: Steps[_Result]) -> _Result: ...


class SnapshotConnection(Asked, Protocol):
    """Connection with the methods that reading a chunk needs."""

    def begin_snapshot(self) -> GtidPosition: ...

    def position(self) -> GtidPosition: ...

    def select(self, sql: str) -> ResultStream: ...

    def end_snapshot(self) -> None: ...

    def close(self) -> None: ...


def asked(connect: Callable[[], Connection], question: Callable[[Connection], Answer], patience_s: float) -> Answer:
    """Return the answer to a question over a new connection.

    Args:
        connect: Opens a connection.
        question: Gets the connection and returns the answer.
        patience_s: Time in seconds after which no further attempt is made.

    Raises:
        DisconnectedError: No server was reachable for `patience_s`.
        ReplicaError: Any other error of `connect` or `question`.
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
