"""Status record: the state of a daemon as one JSON object.

`mariadb-replica status`, /status and the metrics show the fields of a `StatusRecord`. No field may hold a secret. Times
are seconds since 1970; None means never or unknown. Counters start with the daemon.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from replica.daemon.status.lag import Purge  # noqa: TC001  (pydantic reads the annotations when the class is made)
from replica.live.progress import PauseReason, State  # noqa: TC001


class _Part(BaseModel):
    # An older reader must accept a field that a later version adds.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Connection(_Part):
    """The connection to the primary, and how earlier connections ended."""

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
    """The lag behind the primary. lag.py defines each figure."""

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
    """Counters since the start of the daemon."""

    received_bytes: int
    groups: int
    events: int
    ignored_events: int
    discarded_groups: int
    statement_dml: int = 0
    """Number of changes that were logged as statements, without rows."""
    checksum_errors: int
    heartbeats: int
    last_receipt_at: float | None
    disk_full_events: int
    paused_s: float


class Acks(_Part):
    """Semi-synchronous acknowledgements. Latencies are seconds from the receipt of the bytes to the ACK."""

    count: int
    syncs: int
    acknowledged: str
    last_s: float | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


class Relay(_Part):
    """The relay log on disk, and the effects of retention."""

    directory: str
    files: int
    bytes: int
    free_bytes: int
    removed_files: int
    removed_bytes: int
    dropped_readers: int


class ReaderStatus(_Part):
    """A registered reader. `bytes_behind` is the size of the relay log after the reader's place."""

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
    """All fields of `mariadb-replica status`, /status and the metrics."""

    v: Literal[1] = 1
    version: str
    cluster: str = ""
    """The option `cluster`; empty without one."""
    pid: int
    written_at: float
    started_at: float
    state: State
    pause: PauseReason
    ready: bool
    not_ready: str
    """The reason in words; empty if ready."""
    failure: Failure | None
    connection: Connection
    position: Position
    behind: Lagging
    primary: Primary | None
    primary_error: str
    """Why the monitor has no newer answer."""
    stream: Stream
    acks: Acks
    relay: Relay
    readers: tuple[ReaderStatus, ...]
    dropped_readers: tuple[str, ...]
    loop_delay_s: float
    errors: dict[str, int]
    """Number of failed runs of each part beside the stream."""
