"""Status record: the state of a daemon as one JSON object, and its file `relay.status`.

`mariadb-replica status`, /status and the metrics show the fields of a `StatusRecord`. No field may hold a secret. Times
are seconds since 1970; None means never or unknown. Counters start with the daemon.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from replica.daemon.status.lag import Purge  # noqa: TC001  (pydantic reads the annotations when the class is made)
from replica.errors import RelayError
from replica.live.progress import PauseReason, State  # noqa: TC001
from replica.relay_log.directory.disk import FULL, replace_file

if TYPE_CHECKING:
    from pathlib import Path


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
    """Value of the option `cluster`; empty without the option."""
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


# The status file is replaced as a whole, so that a reader sees either the old or the new record. Only on a full disk is
# it overwritten in place, and a reader that finds an incomplete record retries.


STATUS_NAME = "relay.status"
WRITE_EVERY_S = 1.0
STALE_S = 15.0
"""Age in seconds from which a record's writer has stopped or hangs. On a busy machine a record may be a few seconds
late.
"""

_ATTEMPTS = 5
_PAUSE_S = 0.02


def write_status(directory: Path, record: StatusRecord) -> None:
    """Replace the file.

    Raises:
        OSError: the file cannot be written. A full disk raises nothing.
    """
    path, data = directory / STATUS_NAME, record.model_dump_json().encode()
    try:
        replace_file(path, data)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _overwrite(path, data)


def _overwrite(path: Path, data: bytes) -> None:
    """Overwrite the existing blocks of the file, because the status matters most when the disk is full."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def read_status(directory: Path) -> StatusRecord | None:
    """Return the last record, or None if no daemon has written one.

    Raises:
        RelayError: the file cannot be read, or is of another version of this program.
    """
    path = directory / STATUS_NAME
    for attempt in range(_ATTEMPTS):
        try:
            return StatusRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RelayError(
                f"{path} cannot be read: {error.strerror}.", hint="Run this as the daemon's user."
            ) from None
        except ValidationError as error:
            if attempt == _ATTEMPTS - 1:
                first = error.errors(include_input=False, include_url=False)[0]
                raise RelayError(
                    f"{path} is not a status record of this version ({'.'.join(map(str, first['loc']))}: "
                    f"{first['msg']}).",
                    hint="Use the version of mariadb-replica that runs there.",
                ) from None
        time.sleep(_PAUSE_S)
    raise AssertionError("unreachable")
