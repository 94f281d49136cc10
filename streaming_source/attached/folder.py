"""The decision whether the folder that relayDir names is a daemon's, so that the query reads what the daemon writes.

`attached_directory` returns the folder to attach to, or None if the query runs its own replica. A daemon marks its
folder permanently. A query attaches to such a folder even while the daemon is down, and never writes there. An unused
folder becomes the query's own if the options name a server. If another process has just taken a folder and not marked
it, the query waits for the mark. Without a server, a folder that has never been a relay log is an error, and so is one
of another query.
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
"""Options of a replica that a daemon takes from its own configuration."""

UNMARKED_S: Final = 10.0
"""Seconds to wait for the mark. A process loads a kernel between taking and marking a folder. If it is stopped before
that, it never marks the folder.
"""
_POLL_S: Final = 0.1

_log = logging.getLogger(__name__)


def attached_directory(options: SourceOptions) -> Path | None:
    """Return the daemon's folder as an absolute path, or None if the query runs its own replica.

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
        identity = read_identity(directory)  # the process may have marked the folder and ended between the two checks
    if identity is not None:
        if identity.owner == "daemon":
            return directory
        if options.replica is None:
            raise ConfigError(
                f"relayDir {directory} belongs to a query that runs its own replica; only a daemon's can be shared.",
                hint="Name the relay_dir of a running mariadb-replica. Or set host and user, so that this query runs "
                "its own replica, with another relayDir or none.",
            )
        return None
    if options.replica is None:
        from replica.relay_log.directory.head import (
            HEAD_NAME,  # imports numba, which a load() without a daemon's log does not need
        )

        if not (directory / HEAD_NAME).exists():
            raise RelayError(
                f"there is no relay log in {directory}.",
                hint="Start the daemon that writes it (mariadb-replica run --relay-dir …) first, check relayDir and "
                "its permissions, or set host and user: then the query runs its own replica.",
            )
        return directory
    return None


def warn_of_unused(options: SourceOptions) -> None:
    """Log which of the given options have no effect in a query that is attached."""
    given = options.replica.model_fields_set & RECEIVING if options.replica else None
    if given:
        _log.warning(
            "relayDir %s belongs to a daemon: the daemon's configuration applies, and %s of this query has no effect",
            *(options.relay_dir, ", ".join(sorted(map(camel, given)))),
        )


def primary_of(directory: Path) -> str:
    """Return the primary as the daemon names it, host:port, or '' if the daemon has never connected."""
    status, identity = read_status(directory), read_identity(directory)
    if status is not None and status.connection.endpoint:
        return status.connection.endpoint
    # The status lags by a second, and the identity drops a connection that was closed in good order.
    return identity.connections[-1].endpoint if identity is not None and identity.connections else ""
