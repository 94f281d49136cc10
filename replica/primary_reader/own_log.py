"""Temporary relay log of a primary, which a temporary replica writes and which is deleted after use.

`own_log` starts the replica at a position and yields the log. The replica has its own server id, never acknowledges,
and keeps at most OWN_LOG_BYTES on disk.
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
"""File size after which a new file begins. Processed files are removed, and small files are removed sooner. A larger
transaction makes a larger file.
"""
OWN_LOG_BYTES: Final = 256 << 20
"""Log size at which receiving pauses until the caller has processed the log."""


class OwnLog(NamedTuple):
    """Relay log and the replica that writes it."""

    log: RelayLog
    replica: EmbeddedReplica


@contextlib.contextmanager
def own_log(
    config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger, **options: object
) -> Iterator[OwnLog]:
    """Receive the binlog after `start` (latest, earliest, or a position); `options` override those of `config`.

    Raises:
        ReplicaError: Any error of EmbeddedReplica, from the calls of the replica.
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
