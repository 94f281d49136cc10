"""State of a replica as plain numbers, written in the loop's thread and read by any thread at any time.

In: the client and its sessions set the fields. Out: the status record, the metrics and the health endpoints read them.
There is no lock, because each field is one value that is replaced, and reading two fields at slightly different times
is harmless. The receiving path may spend no more than a few additions on each chunk here.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from replica.protocol.gtid import BinlogPosition

State = Literal["starting", "connecting", "streaming", "paused", "disk full", "stopping", "stopped", "failed"]
PauseReason = Literal["", "relay log full", "disk nearly full"]

ACK_BUCKETS_S: Final = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds. An fsync takes 0.1 ms to some 10 ms; the primary gives up after 10 s by default."""


@dataclass(slots=True)
class AckLatency:
    """Time from the receipt of bytes that request an acknowledgement to the sending of the acknowledgement. Cumulative,
    never reset.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(ACK_BUCKETS_S) + 1))
    count: int = 0
    sum_s: float = 0.0
    last_s: float = 0.0
    max_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(ACK_BUCKETS_S, seconds)] += 1
        self.count += 1
        self.sum_s += seconds
        self.last_s = seconds
        self.max_s = max(self.max_s, seconds)

    def quantile(self, share: float) -> float | None:
        """Return the upper bound in seconds of the bucket with the quantile `share`; None without data.

        The upper bound of the last bucket is max_s.
        """
        if not self.count:
            return None
        wanted, seen = share * self.count, 0
        for bound, count in zip((*ACK_BUCKETS_S, self.max_s), self.counts, strict=True):
            seen += count
            if seen >= wanted:
                return min(bound, self.max_s)
        return self.max_s


@dataclass(slots=True)
class Progress:
    """State and counters of one replica.

    Times are seconds since 1970 (UTC) by this machine's clock; 0.0 means never.
    """

    state: State = "starting"
    pause: PauseReason = ""
    started_at: float = 0.0
    # the connection
    endpoint: str = ""
    primary_version: str = ""
    primary_server_id: int = 0
    server_id: int = 0
    thread_id: int = 0
    semi_sync: bool = False
    compressed: bool = False
    tls: str = ""
    """TLS version and cipher in use; empty without TLS."""
    connected_at: float = 0.0
    connections: int = 0
    disconnects: int = 0
    """Number of connections that did not end at our own request."""
    failed_attempts: int = 0
    """Number of attempts that failed before a stream began."""
    last_error: str = ""
    last_error_at: float = 0.0
    # the stream
    received_bytes: int = 0
    groups: int = 0
    events: int = 0
    ignored_events: int = 0
    """Number of unknown events with the IGNORABLE flag, and of dummy events."""
    discarded_groups: int = 0
    """Number of incomplete groups that a reconnect or a new file cut off. The server sends them again."""
    statement_dml: int = 0
    """Number of changes inside transactions that were logged as statements, in any table.

    Their rows are not in the log.
    """
    checksum_errors: int = 0
    last_receipt_at: float = 0.0
    heartbeats: int = 0
    primary: BinlogPosition | None = None
    """End of the primary's binlog when the primary last had nothing to send."""
    # durability
    acks: int = 0
    ack_latency: AckLatency = field(default_factory=AckLatency)
    acknowledged: BinlogPosition | None = None
    syncs: int = 0
    disk_full_events: int = 0
    paused_s: float = 0.0
    """Total number of seconds in which receiving was paused for lack of space."""
