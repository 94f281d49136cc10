"""Write the bodies of a primary's events, without header and checksum: one function an event type.

`tests/unit/kit/test_bodies.py` writes the events of every recorded binlog again with them, byte for byte.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import zstandard

from replica.protocol.events.transaction_events import XaId

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER: Final = "11.8.6-MariaDB-log"
_MARIADB: Final = {
    1: 56,
    2: 13,
    4: 8,
    6: 18,
    8: 4,
    9: 4,
    10: 4,
    11: 4,
    12: 18,
    15: 228,
    17: 4,
    18: 26,
    19: 8,
    26: 2,
    **dict.fromkeys((23, 24, 25), 8),
    **dict.fromkeys((30, 31, 32, 39, 40, 41), 10),
    161: 4,
    162: 19,
    163: 4,
    165: 13,
    **dict.fromkeys((166, 167, 168), 8),
    **dict.fromkeys((169, 170, 171), 10),
}
"""Length of each event type's fixed part. 10.5 says 0 of 39 to 41, which no MariaDB server writes."""
_TYPES: Final = 171


def format_description(
    checksum: int, *, server: str = SERVER, created: int = 0, lengths: Mapping[int, int] | None = None
) -> bytes:
    """Of a MariaDB server; `lengths` are those of single event types that differ."""
    known = _MARIADB | dict(lengths or {})
    fixed = bytes(known.get(kind, 0) for kind in range(1, _TYPES + 1))
    return struct.pack("<H50sIB", 4, server.encode(), created, 19) + fixed + bytes((checksum,))


def gtid(seq_no: int, domain: int = 0, flags: int = 0, rest: bytes = b"") -> bytes:
    """`rest` are the optional fields, in their order: commit id, XA id, extra flags and what these announce."""
    return (struct.pack("<QIB", seq_no, domain, flags) + rest).ljust(19, b"\0")


def query(
    sql: bytes, database: bytes = b"d", *, thread: int = 1, seconds: int = 0, error: int = 0, status: bytes = b""
) -> bytes:
    """`status` holds the status variables as they are stored."""
    head = struct.pack("<IIBHH", thread, seconds, len(database), error, len(status))
    return head + status + database + b"\0" + sql


def xid(number: int = 0) -> bytes:
    return struct.pack("<Q", number)


def xa_id(name: str) -> XaId:
    return XaId(1, name.encode(), b"")


def xa_fields(xid: XaId) -> bytes:
    """The XA id as it stands in a GTID event."""
    return struct.pack("<IBB", xid.format_id, len(xid.gtrid), len(xid.bqual)) + xid.gtrid + xid.bqual


def xa_prepare(xid: XaId, *, one_phase: bool = False) -> bytes:
    lengths = struct.pack("<BIII", one_phase, xid.format_id, len(xid.gtrid), len(xid.bqual))
    return lengths + xid.gtrid + xid.bqual


def xa_text(xid: XaId) -> bytes:
    """The XA id as it stands in a statement."""
    return f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}".encode()


def checkpoint(file: str) -> bytes:
    return struct.pack("<I", len(file)) + file.encode()


def start_encryption(version: int, nonce: bytes, *, scheme: int = 1) -> bytes:
    return struct.pack("<BI", scheme, version) + nonce


def block(data: bytes, length_bytes: int = 4, claimed: int | None = None) -> bytes:
    """`data` as servers compress statements and rows; `claimed` is the length that its head tells."""
    size = len(data) if claimed is None else claimed
    return bytes((0x80 | length_bytes,)) + size.to_bytes(length_bytes, "big") + zlib.compress(data)


def payload(data: bytes, *, compressed: bool = True) -> bytes:
    """TRANSACTION_PAYLOAD of MySQL, with the events of `data`."""
    stored = zstandard.ZstdCompressor().compress(data) if compressed else data
    fields = (1, len(stored)), (2, 0 if compressed else 255), (3, len(data))
    return b"".join(bytes([kind, 9, 0xFE]) + struct.pack("<Q", value) for kind, value in fields) + b"\0" + stored


def fragments(event: bytes, size: int) -> list[bytes]:
    """PARTIAL_ROW_DATA events that hold `event` in pieces of `size` bytes."""
    pieces = [event[at : at + size] for at in range(0, len(event), size)]
    return [
        struct.pack("<IIB", len(pieces), number, number == 1)
        + (struct.pack("<Q", len(event)) if number == 1 else b"")
        + piece
        for number, piece in enumerate(pieces, 1)
    ]


def mysql_gtid(number: int, source: bytes = bytes(16)) -> bytes:
    """GTID_LOG of MySQL, without its optional fields."""
    return b"\0" + source + struct.pack("<q", number)
