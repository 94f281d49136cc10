"""Dumps made by hand: event groups of every shape, the packets they travel in, and the plain twin that reads them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.protocol import checksum as checksums
from replica.protocol.constants import ChecksumAlgorithm, EventType, GtidFlag, HeaderFlag
from replica.protocol.encode import encode_event, encode_gtid_list, encode_rotate
from replica.protocol.groups import GroupTracker, Place
from replica.protocol.gtid import Gtid, GtidPosition
from replica.protocol.header import parse_header
from replica.protocol.packets import PacketSplitter, pack
from replica.semisync.frame import strip

if TYPE_CHECKING:
    from collections.abc import Iterable

CRC32, NONE = ChecksumAlgorithm.CRC32, ChecksumAlgorithm.NONE
SERVER_ID = 77
FILE = "bin.000007"
QUERY_HEAD = struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0"  # no status variables, empty database name


@dataclass
class Primary:
    """Writes the events of one binlog as a primary would send them, keeping count of positions."""

    checksum: ChecksumAlgorithm = CRC32
    file: str = FILE
    position: int = 4
    zero_positions: bool = False  # 11.7+: events inside a group carry no position
    seq: int = 0
    events: list[bytes] = field(default_factory=list)
    timestamp: int = 1_700_000_000

    def event(
        self, kind: int, body: bytes, *, flags: int = 0, server_id: int = SERVER_ID, inside: bool = False
    ) -> bytes:
        size = 19 + len(body) + (4 if self.checksum else 0)
        self.position += size
        shown = 0 if inside and self.zero_positions else self.position
        made = encode_event(
            kind,
            body,
            server_id=server_id,
            checksum=self.checksum,
            timestamp=self.timestamp,
            log_pos=shown,
            flags=flags,
        )
        self.events.append(made)
        return made

    def open_file(self, name: str | None = None) -> None:
        """Artificial ROTATE, FORMAT_DESCRIPTION, GTID_LIST: how a dump or a new file begins."""
        if name is not None:
            self.file = name
        self.position = 4
        self.events.append(encode_rotate(self.file, 4, server_id=SERVER_ID, checksum=self.checksum))
        fde = format_description(self.checksum)
        self.position += len(fde)
        self.events.append(fde)
        self.events.append(
            encode_gtid_list([], server_id=SERVER_ID, checksum=self.checksum, timestamp=self.timestamp, log_pos=0)
        )

    def gtid(self, gtid: Gtid, flags: int, *, xa: str | None = None) -> None:
        fields = bytes(6) if xa is None else struct.pack("<IBB", 1, len(xa), 0) + xa.encode()
        body = struct.pack("<QIB", gtid.seq_no, gtid.domain_id, flags) + fields
        self.event(EventType.GTID, body, server_id=gtid.server_id)

    def transaction(self, gtid: Gtid, rows: Iterable[int] = (20,), end: str = "xid") -> None:
        self.gtid(gtid, GtidFlag.TRANSACTIONAL)
        self.event(EventType.ANNOTATE_ROWS, b"INSERT", inside=True)
        self.event(EventType.TABLE_MAP, b"t" * 30, inside=True)
        for size in rows:
            self.event(EventType.WRITE_ROWS_V1, bytes((size % 251,)) * size, inside=True)
        self.event(EventType.QUERY, QUERY_HEAD + b"SAVEPOINT `x`", inside=True)
        match end:
            case "xid":
                self.event(EventType.XID, bytes(8))
            case "commit":
                self.event(EventType.QUERY, QUERY_HEAD + b"COMMIT")
            case "rollback":
                self.event(EventType.QUERY, QUERY_HEAD + b"ROLLBACK")
            case "xa":
                self.event(EventType.XA_PREPARE, bytes(21))
            case "":
                pass  # left open
            case _:
                raise ValueError(end)

    def statement(self, gtid: Gtid, *, compressed: bool = False, text: bytes = b"CREATE TABLE t (a INT)") -> None:
        self.gtid(gtid, GtidFlag.STANDALONE | GtidFlag.DDL)
        self.event(EventType.INTVAR, bytes(9), inside=True)
        self.event(EventType.QUERY_COMPRESSED if compressed else EventType.QUERY, QUERY_HEAD + text)

    def xa_prepare(self, gtid: Gtid, name: str, rows: Iterable[int] = (20,)) -> None:
        """A group that prepares the XA transaction `name`; ANNOTATE and XA END are left out."""
        self.gtid(gtid, GtidFlag.TRANSACTIONAL | GtidFlag.PREPARED_XA, xa=name)
        self.event(EventType.TABLE_MAP, b"t" * 30, inside=True)
        for size in rows:
            self.event(EventType.WRITE_ROWS_V1, bytes((size % 251,)) * size, inside=True)
        self.event(EventType.XA_PREPARE, struct.pack("<BIII", 0, 1, len(name), 0) + name.encode())

    def xa_end(self, gtid: Gtid, name: str, verb: str = "COMMIT") -> None:
        """XA COMMIT or XA ROLLBACK."""
        self.gtid(gtid, GtidFlag.STANDALONE | GtidFlag.COMPLETED_XA, xa=name)
        self.event(EventType.QUERY, QUERY_HEAD + f"XA {verb} X'{name.encode().hex()}',X'',1".encode())

    def checkpoint(self) -> None:
        self.event(EventType.BINLOG_CHECKPOINT, struct.pack("<I", len(self.file)) + self.file.encode())

    def heartbeat(self) -> None:
        body = self.file.encode()
        self.events.append(
            encode_event(EventType.HEARTBEAT, body, server_id=SERVER_ID, checksum=self.checksum, log_pos=self.position)
        )

    def rotate(self, name: str) -> None:
        size = 19 + 8 + len(name) + (4 if self.checksum else 0)
        self.position += size
        self.events.append(
            encode_rotate(
                name,
                4,
                server_id=SERVER_ID,
                checksum=self.checksum,
                timestamp=self.timestamp,
                log_pos=self.position,
                flags=HeaderFlag(0),
            )
        )
        self.open_file(name)

    def wire(self, *, semi_sync: bool = False, ack: bool = False) -> bytes:
        return b"".join(packet(e, semi_sync=semi_sync, ack=ack, sequence_id=i % 256) for i, e in enumerate(self.events))


def format_description(checksum: ChecksumAlgorithm, *, created: int = 0, timestamp: int = 1_700_000_000) -> bytes:
    lengths = bytearray(171)
    lengths[EventType.QUERY - 1], lengths[EventType.ROTATE - 1] = 13, 8
    lengths[EventType.GTID - 1], lengths[EventType.GTID_LIST - 1] = 19, 4
    body = struct.pack("<H50sIB", 4, b"11.8.6-MariaDB-log", created, 19) + bytes(lengths) + bytes((checksum,))
    # Always with a CRC32, whatever it announces.
    return encode_event(
        EventType.FORMAT_DESCRIPTION, body, server_id=SERVER_ID, checksum=CRC32, timestamp=timestamp, log_pos=256
    )


def packet(event: bytes, *, semi_sync: bool = False, ack: bool = False, sequence_id: int = 0) -> bytes:
    header = b"\0" + (bytes((0xEF, ack)) if semi_sync else b"")
    return pack(header + event, sequence_id)


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
