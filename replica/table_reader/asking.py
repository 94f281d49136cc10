"""A question to a server over a connection of its own, asked again where the connection is lost or an error passes.

In: how a connection is opened, a question, how long it is tried. Out: the answer. Every other error is the answer.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

import tenacity

from replica.table_reader.reading_errors import passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.table_reader.chunk_reader import SnapshotConnection

POLL_S: Final = 0.2
"""How long is waited between two tries: a server that restarts refuses at once."""

Answer = TypeVar("Answer")
Connection = TypeVar("Connection", bound="SnapshotConnection")


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
