"""Read a dump in plain Python, packet by packet and event by event: the twin of the receiver's kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

from replica.protocol import header as checksums
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.gtid import Gtid, GtidPosition
from replica.protocol.header import parse_header
from replica.protocol.packets.packets import PacketSplitter
from replica.semisync.frame import strip
from tests.kit.binlog.primary import CRC32


@dataclass
class Reading:
    """What the twin found: the group bytes of each primary file and the ends in them."""

    files: list[bytearray] = field(default_factory=list)
    ends: list[list[tuple[int, Gtid, int, int]]] = field(default_factory=list)
    position: GtidPosition = field(default_factory=GtidPosition)


def read_plainly(wire: bytes, *, semi_sync: bool = False, checksum: ChecksumAlgorithm = CRC32) -> Reading:
    """Packet by packet, event by event, group by group; ends are (offset, GTID, time, position)."""
    reading, tracker = Reading(), GroupTracker()
    algorithm, open_group, position = checksum, bytearray(), 0
    for payload in PacketSplitter().feed(wire):
        if payload[0] != 0:
            break
        event = payload[1:]
        if semi_sync:
            event, _ = strip(event)
        header = parse_header(event)
        kind = header.event_type
        is_format = kind == EventType.FORMAT_DESCRIPTION
        content = checksums.strip(event, CRC32 if is_format else algorithm)
        if kind == EventType.ROTATE:
            position = int.from_bytes(content[19:27], "little")
        elif is_format:
            algorithm = ChecksumAlgorithm(content[-1])
            reading.files.append(bytearray())
            reading.ends.append([])
            position = max(position, header.log_pos)
            tracker.reset()
        elif kind != EventType.HEARTBEAT and not header.is_artificial:
            position = header.log_pos or position + header.event_length
        place = tracker.feed(header, content)
        if place is Place.OUTSIDE:
            continue
        if place is Place.BEGIN:
            open_group = bytearray()
        open_group += event
        if place is Place.END:
            assert tracker.gtid is not None
            reading.files[-1] += open_group
            reading.ends[-1].append((len(reading.files[-1]), tracker.gtid, header.timestamp, position))
            reading.position = reading.position.advance(tracker.gtid)
            tracker.reset()
    # A file without a group is not kept.
    reading.ends = [e for e, f in zip(reading.ends, reading.files, strict=True) if f]
    reading.files = [f for f in reading.files if f]
    return reading
