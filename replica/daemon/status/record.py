"""The status record: what a daemon says about itself, as one JSON object.

Everything that `mariadb-replica status`, /status and the metrics say stands in a `StatusRecord`; nothing secret has a
field. Times are seconds since 1970; None: never, or not known. Counters are since the daemon started.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from replica.daemon.status.lag import Purge  # noqa: TC001  (pydantic reads the annotations when the class is made)
from replica.live.progress import PauseReason, State  # noqa: TC001


class _Part(BaseModel):
    # A field that a later version adds is no error to an older reader.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Connection(_Part):
    """The connection to the primary, and how the ones before it ended."""

    endpoint: str
    primary_version: str
    primary_server_id: int
    server_id: int
    thread_id: int
    semi_sync: bool
    ack_policy: str
    compressed: bool
    tls: str
    connected_at: float | None
    connections: int
    disconnects: int
    failed_attempts: int
    last_error: str
    last_error_at: float | None


class Position(_Part):
    """The last complete event group in the relay log."""

    gtid: str
    relay: str
    primary_file: str
    primary_position: int
    time: float | None


class Lagging(_Part):
    """The distance behind the primary; see lag.py for what each figure counts."""

    seconds: float | None
    bytes: int | None
    groups: int | None
    purge: Purge
    purged_in_hours: float | None


class Primary(_Part):
    """The primary's last answer to the monitor."""

    gtid: str
    file: str
    position: int | None
    clock_offset_s: float
    asked_at: float
    semi_sync: bool | None
    semi_sync_clients: int | None
    expiry_s: float | None


class Stream(_Part):
    """Counters since the daemon started."""

    received_bytes: int
    groups: int
    events: int
    ignored_events: int
    discarded_groups: int
    statement_dml: int = 0
    """Changes that were logged as statements, without rows."""
    checksum_errors: int
    heartbeats: int
    last_receipt_at: float | None
    disk_full_events: int
    paused_s: float


class Acks(_Part):
    """Semi-synchronous acknowledgements; seconds from the receipt of the bytes to the ACK."""

    count: int
    syncs: int
    acknowledged: str
    last_s: float | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


class Relay(_Part):
    """The relay log on disk, and what retention did to it."""

    directory: str
    files: int
    bytes: int
    free_bytes: int
    removed_files: int
    removed_bytes: int
    dropped_readers: int


class ReaderStatus(_Part):
    """A registered reader; `bytes_behind` is what the relay log holds after the place it keeps."""

    name: str
    position: str
    relay: str
    seen: float
    bytes_behind: int | None


class Failure(_Part):
    """The error that ended the daemon."""

    error: str
    message: str
    hint: str
    exit_code: int


class StatusRecord(_Part):
    """Everything `mariadb-replica status`, /status and the metrics say."""

    v: Literal[1] = 1
    version: str
    cluster: str = ""
    """The name that the option gives; empty without one."""
    pid: int
    written_at: float
    started_at: float
    state: State
    pause: PauseReason
    ready: bool
    not_ready: str
    """Why not, in words; empty when ready."""
    failure: Failure | None
    connection: Connection
    position: Position
    behind: Lagging
    primary: Primary | None
    primary_error: str
    """Why the monitor has no fresh answer."""
    stream: Stream
    acks: Acks
    relay: Relay
    readers: tuple[ReaderStatus, ...]
    dropped_readers: tuple[str, ...]
    loop_delay_s: float
    errors: dict[str, int]
    """Turns of the parts beside the stream that failed, by part."""
