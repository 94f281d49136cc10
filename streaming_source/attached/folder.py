"""The decision whether the folder that relayDir names is a daemon's, so that a query reads what the daemon writes.

In: the options. Out: the folder to attach to, or None where the query runs a replica of its own. A daemon marks its
folder as its own for good: it is attached to also while the daemon is down, and never written. A folder that no one has
used becomes the query's own where the options name a server; one that another process has just begun to use is looked
at again until it says whose it is. Refused: without a server, a folder that has never been a relay log, and one that
belongs to another query.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from replica.daemon.status.file import read_status
from replica.errors import ConfigError, RelayError
from replica.relay_log.directory.identity import read_identity
from streaming_source.attached.daemon import is_held
from streaming_source.options.source_options import camel

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.options.source_options import SourceOptions

RECEIVING: Final = frozenset(
    (
        *("server_id", "report_host", "heartbeat_s", "net_write_timeout_s"),
        *("gtid_ignore_duplicates", "semi_sync", "ack_policy", "relay_max_file_bytes", "relay_max_file_age_s"),
        *("relay_max_bytes", "min_free_bytes", "reconnect_retry_s"),
    )
)
"""Options of a replica that the daemon has in its own configuration."""

UNMARKED_S: Final = 10.0
"""Between taking a folder and marking it a kernel is loaded; a query that is stopped just then never marks it."""
_POLL_S: Final = 0.1

_log = logging.getLogger(__name__)


def attached_directory(options: SourceOptions) -> Path | None:
    """Return the daemon's folder, absolute; None for a replica of the query's own.

    Raises:
        ConfigError: no server is named, and the folder is another query's.
        RelayError: no server is named, and there is no relay log; or the folder cannot be read.
    """
    if options.relay_dir is None:
        return None
    directory = options.relay_dir.absolute()
    identity = read_identity(directory)
    deadline = time.monotonic() + UNMARKED_S
    while identity is None and options.replica is not None and is_held(directory) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        identity = read_identity(directory)
    if identity is None and options.replica is not None:
        identity = read_identity(directory)  # it may have been marked and left between the two looks
    if identity is not None:
        if identity.owner == "daemon":
            return directory
        if options.replica is None:
            raise ConfigError(
                f"relayDir {directory} belongs to a query that runs its own replica; only a daemon's can be shared.",
                hint="Name the relay_dir of a running mariadb-replica, or set host and user for a replica of this "
                "query's own, with a relayDir of its own or none.",
            )
        return None
    if options.replica is None:
        from replica.relay_log.directory.head import (
            HEAD_NAME,  # brings numba, which no load() without a daemon's log needs
        )

        if not (directory / HEAD_NAME).exists():
            raise RelayError(
                f"there is no relay log in {directory}.",
                hint="Start the daemon that writes it (mariadb-replica run --relay-dir …) first, check relayDir and "
                "its permissions, or set host and user: then the query runs a replica of its own.",
            )
        return directory
    return None


def warn_of_unused(options: SourceOptions) -> None:
    """Log which of the given options do nothing in a query that is attached."""
    given = options.replica.model_fields_set & RECEIVING if options.replica else None
    if given:
        _log.warning(
            "relayDir %s is a daemon's: its configuration counts, and not %s of this query",
            *(options.relay_dir, ", ".join(sorted(map(camel, given)))),
        )


def primary_of(directory: Path) -> str:
    """Return the primary as the daemon names it, host:port; empty where it has never connected."""
    status, identity = read_status(directory), read_identity(directory)
    if status is not None and status.connection.endpoint:
        return status.connection.endpoint
    # The status is a second late, and the identity forgets a connection that was ended in good order.
    return identity.connections[-1].endpoint if identity is not None and identity.connections else ""
