"""The wait for a server that tables are read from, and that may be behind the stream, as a replica is.

In: a connection to it, and the position that it has to get to. Out: nothing, once it has. Refused: a server that has
not got there within a minute, by name. What ended the stream is raised meanwhile.
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
"""How long a replica may take to get to where its tables are asked for; the planning of a batch waits meanwhile."""
LAG_POLL_S: Final = 0.1
"""How often it is asked."""


def await_position(connection: SnapshotConnection, wanted: GtidPosition, host: Endpoint, view: LogView) -> None:
    """Wait until a server has got to a position.

    Raises:
        PrerequisiteError: it has not within LAG_S.
        ReplicaError: whatever ended the stream.
    """
    deadline = time.monotonic() + LAG_S
    while not covers(at := connection.position(), wanted):
        view.head()
        if time.monotonic() >= deadline:
            raise PrerequisiteError(
                f"{host}, which tables are read from, is at {at or 'no position'} and has not got to {wanted} within "
                f"{LAG_S:.0f} s: its tables are not yet as they are asked for.",
                hint="Wait until it has (SHOW SLAVE STATUS on it says why not), or read tables from the primary.",
            )
        time.sleep(LAG_POLL_S)
