"""Creation of the status record from all parts of the daemon.

In: the progress, the relay log, the monitor, retention, the registered readers. Out: a `StatusRecord`. Several threads
call it, one at a time. The receiving path uses nothing of this module.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from replica.daemon.status.lag import PrimaryLag, Sample
from replica.daemon.status.record import (
    Acks,
    Connection,
    Failure,
    Lagging,
    Position,
    Primary,
    ReaderStatus,
    Relay,
    StatusRecord,
    Stream,
)
from replica.errors import RelayError
from replica.relay_log.directory.identity import source_of
from replica.relay_log.directory.readers import registered_readers
from replica.relay_log.files.lookup import SealedFiles, read_file_head
from replica.relay_log.location import relay_path
from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.daemon.config import DaemonConfig
    from replica.daemon.monitor import Monitor, MonitorAnswer
    from replica.daemon.retain import Retaining
    from replica.live.progress import Progress
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_writer.writer import RelayWriter

FRESH_S = 0.5
"""Seconds within which calls get the same record, so that many requests cost nothing."""
QUIET_HEARTBEATS = 1.5
MAX_COUNTED_FILES = 1000
"""Maximum number of counted files. The default limits give fewer; each file costs a stat call every second."""
HOUR_S = 3600.0


class Observer:
    """Observer of all parts of the daemon.

    `record()` returns the newest record. `failed` is set once, by the error that ended the daemon.
    """

    def __init__(
        self,
        config: DaemonConfig,
        relay: RelayWriter,
        progress: Progress,
        *,
        monitor: Monitor,
        retaining: Retaining,
        loop_delay_s: Callable[[], float],
        errors: Callable[[], dict[str, int]],
    ) -> None:
        self.failed: Failure | None = None
        self._config = config
        self._relay = relay
        self._progress = progress
        self._monitor = monitor
        self._retaining = retaining
        self._loop_delay_s = loop_delay_s
        self._errors = errors
        self._lag = PrimaryLag()
        self._files = SealedFiles(relay.directory)
        self._lock = threading.Lock()
        self._record: StatusRecord | None = None
        self._head_server: tuple[int, int, str | None] = (0, 0, None)

    def record(self, *, fresh: bool = False) -> StatusRecord:
        """Return the current status. Without `fresh` it may be up to half a second old."""
        with self._lock:
            now, last = time.time(), self._record
            if fresh or last is None or not 0 <= now - last.written_at < FRESH_S:
                self._record = last = self._made(now)
            return last

    def _made(self, now: float) -> StatusRecord:
        progress, head = self._progress, self._relay.head
        lag = self._lagging(now, head)
        not_ready = self._not_ready(lag)
        return StatusRecord(
            version=__version__,
            cluster=self._config.cluster or "",
            pid=os.getpid(),
            written_at=now,
            started_at=progress.started_at,
            state=progress.state,
            pause=progress.pause,
            ready=not not_ready,
            not_ready=not_ready,
            failure=self.failed,
            connection=connection(progress, self._config.ack_policy),
            position=Position(
                gtid=str(head.position),
                relay=str(head.location),
                primary_file=head.primary.file,
                primary_position=head.primary.position,
                time=head.timestamp or None,
            ),
            behind=lag,
            primary=primary(self._monitor.known),
            primary_error=self._monitor.error,
            stream=stream(progress),
            acks=acks(progress),
            relay=self._relay_log(head),
            readers=self._readers(head),
            dropped_readers=self._retaining.dropped_readers,
            loop_delay_s=self._loop_delay_s(),
            errors=self._errors() | {"monitor": self._monitor.errors},
        )

    def _lagging(self, now: float, head: RelayHead) -> Lagging:
        known = self._monitor.known
        sample = Sample(
            now=now,
            head=head,
            head_server_id=self._server_id_of(head),
            head_uid=self._head_server[2] if self._head_server[0] == head.location.file else None,
            answer=known.answer if known else None,
            binlogs=known.binlogs if known else None,
            progress=self._progress,
            quiet_s=QUIET_HEARTBEATS * self._config.heartbeat_s + 1,
        )
        lag = self._lag.sample(sample)
        if lag.seconds and lag.groups == 0 and self._progress.state == "streaming":
            self._monitor.ask_soon()  # the primary's last known position has been received, so it may have nothing more
        return Lagging(
            seconds=None if lag.seconds is None else round(lag.seconds, 3),
            bytes=lag.bytes,
            groups=lag.groups,
            purge=lag.purge,
            purged_in_hours=None if lag.safe_s is None else round(lag.safe_s / HOUR_S, 3),
        )

    def _server_id_of(self, head: RelayHead) -> int:
        """Return the id of the server whose binlog the newest relay file came from; 0 before the first group."""
        number = head.location.file
        if head.location.offset and self._head_server[0] != number:
            try:
                written_by = read_file_head(relay_path(self._relay.directory, number)).server_id
            except (OSError, RelayError):
                return 0  # the log was restarted at this moment
            self._head_server = (number, written_by, source_of(self._relay.directory, number))
        return self._head_server[1] if self._head_server[0] == number else 0

    def _not_ready(self, lag: Lagging) -> str:
        progress, limit_s = self._progress, self._config.ready_lag_s
        if self.failed is not None:
            return f"failed: {self.failed.message}"
        if progress.state == "paused":
            return f"receiving is paused: {progress.pause}"
        if progress.state != "streaming":
            return f"{progress.state}: {progress.last_error}" if progress.last_error else progress.state
        if lag.seconds is None:
            return "the lag is not known yet"
        if lag.seconds > limit_s:
            return f"{lag.seconds:.0f} s behind, more than ready_lag_s ({limit_s:g} s)"
        return ""

    def _relay_log(self, head: RelayHead) -> Relay:
        directory, done = self._relay.directory, self._retaining
        self._files.extend(head.location.file - 1)
        # The file of the head, which a new log may not have yet, and one after it without a group.
        begun = itertools.takewhile(lambda n: relay_path(directory, n).exists(), itertools.count(head.location.file))
        return Relay(
            directory=str(directory.absolute()),
            files=self._files.total()[0] + sum(1 for _ in begun),
            bytes=self._relay.total_bytes(),
            free_bytes=self._relay.free_bytes(),
            removed_files=done.removed_files,
            removed_bytes=done.removed_bytes,
            dropped_readers=done.dropped,
        )

    def _readers(self, head: RelayHead) -> tuple[ReaderStatus, ...]:
        directory = self._relay.directory
        return tuple(
            ReaderStatus(
                name=one.name,
                position=one.position,
                relay=str(one.location),
                seen=one.seen,
                bytes_behind=_log_bytes(directory, one.location, head.location),
            )
            for one in registered_readers(directory)
        )


def _log_bytes(directory: Path, start: RelayLocation, end: RelayLocation) -> int | None:
    """Return the number of bytes of the relay log from one place to a later one.

    None means that files are missing, or that there are too many to count.
    """
    if start >= end:
        return 0
    if end.file - start.file > MAX_COUNTED_FILES:
        return None
    try:
        sizes = sum(relay_path(directory, number).stat().st_size for number in range(start.file, end.file))
    except FileNotFoundError:
        return None
    return sizes + end.offset - start.offset


# In the progress counters 0 means never; in the status record None does.

CONNECTED: Final = ("streaming", "paused")


def connection(p: Progress, ack_policy: str) -> Connection:
    """Return the `connection` part of the status record."""
    return Connection(
        endpoint=p.endpoint,
        primary_version=p.primary_version,
        primary_server_id=p.primary_server_id,
        server_id=p.server_id,
        thread_id=p.thread_id,
        semi_sync=p.semi_sync and p.state in CONNECTED,
        ack_policy=ack_policy,
        compressed=p.compressed,
        tls=p.tls,
        connected_at=p.connected_at or None,
        connections=p.connections,
        disconnects=p.disconnects,
        failed_attempts=p.failed_attempts,
        last_error=p.last_error,
        last_error_at=p.last_error_at or None,
    )


def primary(known: MonitorAnswer | None) -> Primary | None:
    """Return the `primary` part of the status record; None before the monitor's first answer."""
    if known is None:
        return None
    answer = known.answer
    return Primary(
        gtid=str(answer.position),
        file=answer.place.file if answer.place else "",
        position=answer.place.position if answer.place else None,
        clock_offset_s=round(answer.clock_offset_s, 4),
        asked_at=answer.asked_at,
        semi_sync=answer.semi_sync,
        semi_sync_clients=answer.semi_sync_clients,
        expiry_s=answer.expiry_s,
    )


def stream(p: Progress) -> Stream:
    """Return the `stream` part of the status record."""
    return Stream(
        received_bytes=p.received_bytes,
        groups=p.groups,
        events=p.events,
        ignored_events=p.ignored_events,
        discarded_groups=p.discarded_groups,
        statement_dml=p.statement_dml,
        checksum_errors=p.checksum_errors,
        heartbeats=p.heartbeats,
        last_receipt_at=p.last_receipt_at or None,
        disk_full_events=p.disk_full_events,
        paused_s=round(p.paused_s, 3),
    )


def acks(p: Progress) -> Acks:
    """Return the `acks` part of the status record."""
    latency = p.ack_latency
    return Acks(
        count=p.acks,
        syncs=p.syncs,
        acknowledged=str(p.acknowledged or ""),
        last_s=latency.last_s if latency.count else None,
        p50_s=latency.quantile(0.5),
        p99_s=latency.quantile(0.99),
        max_s=latency.max_s if latency.count else None,
    )
