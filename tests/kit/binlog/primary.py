"""Write what a primary writes: events with positions, event groups, binlog files, and the packets of a dump.

    primary = Primary.dump(Gtid(0, 1, 1))      # ROTATE, FORMAT_DESCRIPTION and GTID_LIST, and a group
    start = primary.gtid()                     # or event by event; each says where it begins
    primary.event(INSERT, rows(...))
    primary.xid()
    primary.wire(semi_sync=True)               # packets;  bytes(primary): a range;  primary.binlog(): a binlog file

`real_rows.py` writes groups whose rows can be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, EventType, GtidFlag, HeaderFlag
from replica.protocol.events.binlog_file import encode_event, encode_gtid_list, encode_rotate
from replica.protocol.gtid import Gtid
from replica.protocol.packets.packets import pack
from tests.kit.binlog import bodies
from tests.kit.binlog.rows import INSERT

if TYPE_CHECKING:
    from collections.abc import Iterable

CRC32, NONE = ChecksumAlgorithm.CRC32, ChecksumAlgorithm.NONE
DOMAIN, SERVER_ID = 3, 9
FILE = "bin.000007"
TIMESTAMP = 1_700_000_000
HEAD_BYTES = 256
"""Magic and FORMAT_DESCRIPTION of a file of MariaDB."""


@dataclass
class Primary:
    """The events of one binlog as they are written and sent."""

    checksum: int = CRC32
    file: str = FILE
    position: int = HEAD_BYTES
    zero_positions: bool = False  # 11.7+: events inside a group carry no position
    sequence: int = 0
    """Of the last GTID that was not given."""
    events: list[bytes] = field(default_factory=list)
    timestamp: int = TIMESTAMP

    @classmethod
    def dump(cls, *gtids: Gtid, **fields: Any) -> Self:
        """One that has begun a dump, with a transaction of each GTID."""
        primary = cls(**fields)
        primary.open_file()
        for gtid in gtids:
            primary.transaction(gtid)
        return primary

    def event(
        self,
        kind: int,
        body: bytes,
        *,
        flags: int = 0,
        server_id: int = SERVER_ID,
        timestamp: int | None = None,
        inside: bool = False,
    ) -> int:
        """Append an event; return where it begins in `bytes(self)`."""
        start = sum(map(len, self.events))
        self.position += 19 + len(body) + (4 if self.checksum else 0)
        made = encode_event(
            kind,
            body,
            server_id=server_id,
            checksum=ChecksumAlgorithm(self.checksum),
            timestamp=self.timestamp if timestamp is None else timestamp,
            log_pos=0 if inside and self.zero_positions else self.position,
            flags=flags,
        )
        self.events.append(made)
        return start

    def open_file(self, name: str | None = None) -> None:
        """Artificial ROTATE, FORMAT_DESCRIPTION, GTID_LIST: how a dump or a new file begins."""
        if name is not None:
            self.file = name
        checksum = ChecksumAlgorithm(self.checksum)
        self.position = HEAD_BYTES
        self.events += (
            encode_rotate(self.file, 4, server_id=SERVER_ID, checksum=checksum),
            format_description(self.checksum),
            encode_gtid_list([], server_id=SERVER_ID, checksum=checksum, timestamp=self.timestamp, log_pos=0),
        )

    def connect(self) -> None:
        """Forget what was sent, and begin a dump of the same file where it was left."""
        position = self.position
        self.events.clear()
        self.open_file()
        self.position = position

    def gtid(self, gtid: Gtid | None = None, flags: int = 0, rest: bytes = b"") -> int:
        """The beginning of a group; without a GTID the next of domain 3."""
        if gtid is None:
            self.sequence += 1
            gtid = Gtid(DOMAIN, SERVER_ID, self.sequence)
        body = bodies.gtid(gtid.seq_no, gtid.domain_id, flags, rest)
        return self.event(EventType.GTID, body, server_id=gtid.server_id)

    def begin(self, gtid: Gtid | None = None, *, xa: str | None = None) -> int:
        """The beginning of a transaction, or of one that prepares the XA transaction of this name."""
        if xa is None:
            return self.gtid(gtid, GtidFlag.TRANSACTIONAL)
        return self.gtid(gtid, GtidFlag.TRANSACTIONAL | GtidFlag.PREPARED_XA, bodies.xa_fields(bodies.xa_id(xa)))

    def query(self, sql: bytes, database: bytes = b"d", *, inside: bool = False) -> int:
        return self.event(EventType.QUERY, bodies.query(sql, database), inside=inside)

    def xid(self, number: int = 0, timestamp: int | None = None) -> int:
        return self.event(EventType.XID, bodies.xid(number), timestamp=timestamp)

    def rows(self, table_map: bytes, *events: tuple[int, bytes]) -> int:
        """A transaction of a table map and rows events, given by type and body."""
        start = self.gtid()
        self.event(EventType.TABLE_MAP, table_map)
        for kind, body in events:
            self.event(kind, body)
        self.xid()
        return start

    def xa_prepared(self, name: str, *, one_phase: bool = False) -> int:
        """The event that ends such a group."""
        return self.event(EventType.XA_PREPARE, bodies.xa_prepare(bodies.xa_id(name), one_phase=one_phase))

    def transaction(self, gtid: Gtid | None = None, rows: Iterable[int] = (20,), end: str = "xid") -> None:
        """A group with rows events of these sizes, which nobody can decode."""
        self.begin(gtid)
        self.event(EventType.ANNOTATE_ROWS, b"INSERT", inside=True)
        self._rows(rows)
        self.query(b"SAVEPOINT `x`", inside=True)
        match end:
            case "xid":
                self.xid()
            case "commit" | "rollback":
                self.query(end.upper().encode())
            case "xa":
                self.event(EventType.XA_PREPARE, bytes(21))
            case "":
                pass  # left open
            case _:
                raise ValueError(end)

    def statement(
        self, gtid: Gtid | None, *, compressed: bool = False, text: bytes = b"CREATE TABLE t (a INT)"
    ) -> None:
        """A group of one statement that stands alone."""
        self.gtid(gtid, GtidFlag.STANDALONE | GtidFlag.DDL)
        self.event(EventType.INTVAR, bytes(9), inside=True)
        self.event(EventType.QUERY_COMPRESSED if compressed else EventType.QUERY, bodies.query(text))

    def xa_prepare(self, name: str, gtid: Gtid | None = None, rows: Iterable[int] = (20,)) -> None:
        """A group that prepares the XA transaction `name`; ANNOTATE and XA END are left out."""
        self.begin(gtid, xa=name)
        self._rows(rows)
        self.xa_prepared(name)

    def xa_end(self, name: str, verb: str = "COMMIT", gtid: Gtid | None = None, *, compressed: bool = False) -> None:
        """The group of XA COMMIT or XA ROLLBACK."""
        xid = bodies.xa_id(name)
        self.gtid(gtid, GtidFlag.STANDALONE | GtidFlag.COMPLETED_XA, bodies.xa_fields(xid))
        sql = f"XA {verb} ".encode() + bodies.xa_text(xid)
        if compressed:
            self.event(EventType.QUERY_COMPRESSED, bodies.query(bodies.block(sql)))
        else:
            self.query(sql)

    def checkpoint(self) -> None:
        self.event(EventType.BINLOG_CHECKPOINT, bodies.checkpoint(self.file))

    def heartbeat(self) -> None:
        checksum, body = ChecksumAlgorithm(self.checksum), self.file.encode()
        self.events.append(
            encode_event(EventType.HEARTBEAT, body, server_id=SERVER_ID, checksum=checksum, log_pos=self.position)
        )

    def rotate(self, name: str) -> None:
        """The end of a file, and the beginning of the next."""
        self.position += 19 + 8 + len(name) + (4 if self.checksum else 0)
        self.events.append(
            encode_rotate(
                name,
                4,
                server_id=SERVER_ID,
                checksum=ChecksumAlgorithm(self.checksum),
                timestamp=self.timestamp,
                log_pos=self.position,
                flags=HeaderFlag(0),
            )
        )
        self.open_file(name)

    def wire(self, *, semi_sync: bool = False, ack: bool = False, ack_last: bool = False) -> bytes:
        """The packets of a dump; an ACK is wanted for all events or for the last."""
        last = len(self.events) - 1
        return b"".join(
            packet(event, semi_sync=semi_sync, ack=ack or (ack_last and number == last), sequence_id=number % 256)
            for number, event in enumerate(self.events)
        )

    def __bytes__(self) -> bytes:
        return b"".join(self.events)

    def binlog(self) -> bytes:
        """The events as a binlog file: magic and FORMAT_DESCRIPTION in front."""
        return BINLOG_MAGIC + format_description(self.checksum) + bytes(self)

    def _rows(self, sizes: Iterable[int]) -> None:
        self.event(EventType.TABLE_MAP, b"t" * 30, inside=True)
        for size in sizes:
            self.event(INSERT, bytes((size % 251,)) * size, inside=True)


def format_description(checksum: int, *, created: int = 0, timestamp: int = TIMESTAMP) -> bytes:
    """The event, which has a CRC32 whatever it announces."""
    return encode_event(
        EventType.FORMAT_DESCRIPTION,
        bodies.format_description(checksum, created=created),
        server_id=SERVER_ID,
        checksum=CRC32,
        timestamp=timestamp,
        log_pos=HEAD_BYTES,
    )


def packet(event: bytes, *, semi_sync: bool = False, ack: bool = False, sequence_id: int = 0) -> bytes:
    """The packet, or the packets, in which a dump sends an event."""
    return pack(b"\0" + (bytes((0xEF, ack)) if semi_sync else b"") + event, sequence_id)
