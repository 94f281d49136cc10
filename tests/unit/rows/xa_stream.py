"""XA transactions for a stream made by hand."""

from __future__ import annotations

import struct
import zlib

from replica.protocol.constants import EventType
from replica.protocol.transaction_events import XaId
from tests.unit.rows.stream import INSERT, Column, Stream, image, rows, table_map

COLUMN = Column("a", 3)
TABLE = table_map(1, [COLUMN])
PREPARED, COMPLETED, STANDALONE = 64, 128, 1


def xa_id(name: str) -> XaId:
    return XaId(1, name.encode(), b"b")


def xa_fields(xid: XaId) -> bytes:
    """The XA id as it stands in a GTID event."""
    return struct.pack("<IBB", xid.format_id, len(xid.gtrid), len(xid.bqual)) + xid.gtrid + xid.bqual


def insert(stream: Stream, *values: int, body: bytes = TABLE) -> None:
    stream.event(EventType.TABLE_MAP, body)
    stream.event(INSERT, rows(1, 1, b"".join(image([struct.pack("<i", value)]) for value in values)))


def transaction(stream: Stream, *values: int) -> None:
    stream.gtid()
    insert(stream, *values)
    stream.xid()


def prepare(stream: Stream, name: str, *values: int, one_phase: bool = False) -> tuple[int, int]:
    """A prepared group; returns where it begins and ends."""
    xid = xa_id(name)
    start = stream.gtid(PREPARED, xa_fields(xid))
    insert(stream, *values)
    stream.query(b"XA END " + text(xid))
    xa_prepare(stream, name, one_phase=one_phase)
    return start, len(bytes(stream))


def xa_prepare(stream: Stream, name: str, *, one_phase: bool = False) -> None:
    xid = xa_id(name)
    fields = struct.pack("<BIII", one_phase, xid.format_id, len(xid.gtrid), len(xid.bqual)) + xid.gtrid + xid.bqual
    stream.event(EventType.XA_PREPARE, fields)


def end(stream: Stream, name: str, verb: bytes = b"COMMIT", *, compressed: bool = False) -> None:
    """XA COMMIT or XA ROLLBACK."""
    xid = xa_id(name)
    stream.gtid(COMPLETED | STANDALONE, xa_fields(xid))
    sql = b"XA " + verb + b" " + text(xid)
    if not compressed:
        stream.query(sql)
        return
    block = bytes((0x81, len(sql))) + zlib.compress(sql)
    stream.event(EventType.QUERY_COMPRESSED, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + block)


def text(xid: XaId) -> bytes:
    return f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}".encode()
