"""Status records and samples for tests: a healthy replica, with what a test changes about it."""

from __future__ import annotations

from typing import Any

from replica.daemon.status.lag import Sample
from replica.daemon.status.record import StatusRecord
from replica.handshake.primary.progress import PrimaryAnswer
from replica.live.progress import Progress
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.location import RelayHead, RelayLocation

NOW = 1_700_000_000.0

HEALTHY: dict[str, Any] = {
    "version": "1.2.3",
    "pid": 4711,
    "written_at": NOW,
    "started_at": NOW - 3600,
    "state": "streaming",
    "pause": "",
    "ready": True,
    "not_ready": "",
    "failure": None,
    "connection": {
        "endpoint": "db1:3306", "primary_version": "10.11.9-MariaDB", "primary_server_id": 1, "server_id": 7,
        "thread_id": 12, "semi_sync": True, "ack_policy": "fsync", "compressed": False, "tls": "TLSv1.3 AES",
        "connected_at": NOW - 3500, "connections": 2, "disconnects": 1, "failed_attempts": 0,
        "last_error": "The server closed the connection.", "last_error_at": NOW - 3501,
    },
    "position": {
        "gtid": "0-1-99,3-1-5", "relay": "relay.000003:4096", "primary_file": "bin.000007",
        "primary_position": 1234, "time": NOW - 2,
    },
    "behind": {"seconds": 0.0, "bytes": 0, "groups": 0, "purge": "by age", "purged_in_hours": 47.5},
    "primary": {
        "gtid": "0-1-99,3-1-5", "file": "bin.000007", "position": 1234, "clock_offset_s": 0.001,
        "asked_at": NOW - 1, "semi_sync": True, "semi_sync_clients": 1, "expiry_s": 172800.0,
    },
    "primary_error": "",
    "stream": {
        "received_bytes": 1_000_000, "groups": 99, "events": 500, "ignored_events": 3, "discarded_groups": 1,
        "statement_dml": 4,
        "checksum_errors": 0, "heartbeats": 12, "last_receipt_at": NOW - 1, "disk_full_events": 0, "paused_s": 0.0,
    },
    "acks": {
        "count": 90, "syncs": 95, "acknowledged": "bin.000007:1234", "last_s": 0.0004, "p50_s": 0.0005,
        "p99_s": 0.002, "max_s": 0.0123,
    },
    "relay": {
        "directory": "/var/lib/r", "files": 3, "bytes": 3 << 20, "free_bytes": 5 << 30, "removed_files": 2,
        "removed_bytes": 2 << 20, "dropped_readers": 0,
    },
    "readers": [
        {"name": "orders", "position": "0-1-50", "relay": "relay.000002:4", "seen": NOW - 5, "bytes_behind": 1 << 20},
    ],
    "dropped_readers": [],
    "loop_delay_s": 0.0002,
    "errors": {"status": 0, "retention": 0, "monitor": 1},
}  # fmt: skip


def record(**changed: Any) -> StatusRecord:
    """Healthy, but for `changed`; a dictionary changes fields of a part."""
    content = dict(HEALTHY)
    for name, value in changed.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) and content[name] else value
    return StatusRecord.model_validate(content)


def answer(**changed: Any) -> PrimaryAnswer:
    content: dict[str, Any] = {
        "server_id": 1,
        "position": GtidPosition.parse("0-1-99"),
        "place": BinlogPosition("bin.000007", 9000),
        "clock": NOW,
        "asked_at": NOW,
        "answered_at": NOW,
        "expiry_s": None,
        "max_total_bytes": None,
        "file_kept": True,
        "semi_sync": None,
        "semi_sync_clients": None,
    }
    return PrimaryAnswer(**(content | changed))


def head(gtid: str = "0-1-99", *, position: int = 9000, file: str = "bin.000007", at: float = NOW) -> RelayHead:
    place = BinlogPosition(file, position)
    return RelayHead(RelayLocation(1, position), GtidPosition.parse(gtid), place, int(at))


def sample(now: float = NOW, **changed: Any) -> Sample:
    progress = Progress(state="streaming", last_receipt_at=now)
    content: dict[str, Any] = {
        "now": now,
        "head": head(),
        "head_server_id": 1,
        "answer": None,
        "binlogs": None,
        "progress": progress,
        "quiet_s": 16.0,
    }
    return Sample(**(content | changed))
