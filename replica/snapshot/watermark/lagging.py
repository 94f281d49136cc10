"""Wait until a server reaches a position, because a replica may lag when tables are read from it.

`await_position` raises an error with the server's name after one minute. An error of the stream ends the wait.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from replica.errors import PrerequisiteError
from replica.protocol.gtid import covers

if TYPE_CHECKING:
    from replica.options.values import Endpoint
    from replica.protocol.gtid import GtidPosition
    from replica.snapshot.connection.asking import SnapshotConnection
    from replica.snapshot.log_view import LogView

LAG_S: Final = 60.0
"""Maximum wait for a replica in seconds; the planning of a batch waits meanwhile."""
LAG_POLL_S: Final = 0.1
"""Poll interval in seconds."""


def await_position(connection: SnapshotConnection, wanted: GtidPosition, host: Endpoint, view: LogView) -> None:
    """Wait until a server has reached a position.

    Raises:
        PrerequisiteError: The server has not reached it within LAG_S.
        ReplicaError: The error that ended the stream.
    """
    deadline = time.monotonic() + LAG_S
    while not covers(at := connection.position(), wanted):
        view.head()
        if time.monotonic() >= deadline:
            raise PrerequisiteError(
                f"{host}, which tables are read from, is at {at or 'no position'} and has not reached {wanted} within "
                f"{LAG_S:.0f} s: its tables are older than the position that was asked for.",
                hint="Wait until it has (SHOW SLAVE STATUS on it shows why it lags), or read tables from the primary.",
            )
        time.sleep(LAG_POLL_S)
