"""Relay logs with real rows: a recorded binlog, sent through the receiver as a primary would send it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from replica.commands.tail.source import ChosenInDomains
from replica.protocol.constants import ChecksumAlgorithm
from replica.protocol.events.binlog_file import encode_rotate
from replica.protocol.gtid import GtidPosition
from replica.readers.rows.names import LiveNames
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, Reading
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import packet
from tests.kit.relay.driving import receive
from tests.vectors.load import raw_events

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "bin.000003"


def wire_of(events: Sequence[bytes]) -> bytes:
    rotate = encode_rotate(FILE, 4, server_id=1, checksum=ChecksumAlgorithm.CRC32)
    return b"".join(packet(event) for event in (rotate, *events))


def recorded_log(
    directory: Path, version: str, stem: str, *, start: GtidPosition | None = None, max_file_bytes: int = 1 << 20
) -> RelayLog:
    """A relay log of one of the recorded binlogs; closed, so that every file is sealed."""
    with RelayWriter.open(directory, start=start or GtidPosition(), max_file_bytes=max_file_bytes) as relay:
        # Small pieces: a file is left at the first group end past its limit in a piece.
        receive(relay, wire_of(raw_events(version, stem)), [150])
    return RelayLog(directory)


def live_reading(log: RelayLog, patterns: Sequence[str] = (), **more: Any) -> tuple[Reading, LiveNames]:
    notices = Notices(io.StringIO())
    names = LiveNames(patterns, notices, OPTIONS.policy, more.pop("schema", None), more.pop("ask", None))
    return Reading([str(log.directory)], ChosenInDomains(**more), names, notices), names
