"""Reads a primary through a relay log of our own, which a temporary replica writes and which lives as long as we do.

In: the options of a connection, and where to begin. Out: the log, and the replica. That has a server id of its own,
never acknowledges, and keeps at most OWN_LOG_BYTES on disk; it is gone when we are.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.live.embedded import EmbeddedReplica
from replica.options.config import FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.log import RelayLog

OWN_FILE_BYTES: Final = 16 << 20
"""Files that were looked at are removed: small ones go sooner. A larger transaction makes a larger file."""
OWN_LOG_BYTES: Final = 256 << 20
"""Then receiving pauses, until what is there was looked at."""


class OwnLog(NamedTuple):
    """Hold a relay log, and the replica that writes it."""

    log: RelayLog
    replica: EmbeddedReplica


@contextlib.contextmanager
def own_log(
    config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger, **options: object
) -> Iterator[OwnLog]:
    """Receive what follows `start`: latest, earliest, or a position; `options` go before those of `config`.

    Raises:
        ReplicaError: as EmbeddedReplica raises them, from the replica's calls.
    """
    with tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder:
        own = config.model_copy(
            update={
                "server_id": random.SystemRandom().randint(FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID),
                "semi_sync": False,
                "annotate": True,
                "relay_dir": Path(folder),
                "relay_max_file_bytes": OWN_FILE_BYTES,
                "relay_max_bytes": OWN_LOG_BYTES,
                "start": start if isinstance(start, str) else "latest",
                **options,
            }
        )
        with EmbeddedReplica(own, Path(folder), log=log) as replica:
            replica.start(None if isinstance(start, str) else start)
            yield OwnLog(replica.log, replica)
