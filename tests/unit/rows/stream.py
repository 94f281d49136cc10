"""A primary's stream made by hand: whole events with or without CRC32, grouped into transactions."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, ColumnType, EventType
from replica.protocol.encode import encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

INSERT, UPDATE, DELETE = EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1
STMT_END = 1
_NUMERIC = {1, 2, 3, 4, 5, 8, 9, 13, 246}
_CHARACTER = {254, 15, 252, 255, 140, 141}
_LABELS = {0xF7: 6, 0xF8: 5}


@dataclass(frozen=True)
class Column:
    """A column as FULL row metadata tells it; `metadata` as it stands in the table map."""

    name: str
    code: int
    metadata: bytes = b""
    unsigned: bool = False
    collation: int = 45
    labels: tuple[bytes, ...] = ()
    nullable: bool = True

    @property
    def has_labels(self) -> bool:
        return self.code == ColumnType.STRING and self.metadata[0] in _LABELS


def lenenc(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def counted(text: bytes) -> bytes:
    return lenenc(len(text)) + text


def table_map(table_id: int, columns: Sequence[Column], *, table: str = "t", database: str = "d") -> bytes:
    """The body of a TABLE_MAP event with FULL row metadata."""
    metadata = b"".join(column.metadata for column in columns)
    unsigned = [column.unsigned for column in columns if column.code in _NUMERIC]
    unsigned += [False] * (-len(unsigned) % 8)
    signs = bytes(
        sum(bit << (7 - i) for i, bit in enumerate(unsigned[at : at + 8])) for at in range(0, len(unsigned), 8)
    )
    text = [c for c in columns if c.code in _CHARACTER and not c.has_labels]
    labelled = [c for c in columns if c.has_labels]
    optional = {
        1: signs,
        3: b"".join(lenenc(c.collation) for c in text),
        4: b"".join(counted(c.name.encode()) for c in columns),
        11: b"".join(lenenc(c.collation) for c in labelled),
    }
    for real, kind in _LABELS.items():
        optional[kind] = b"".join(
            lenenc(len(c.labels)) + b"".join(map(counted, c.labels)) for c in labelled if c.metadata[0] == real
        )
    return b"".join(
        (
            table_id.to_bytes(6, "little"),
            struct.pack("<H", 1),
            *(bytes([len(name)]) + name + b"\0" for name in (database.encode(), table.encode())),
            lenenc(len(columns)),
            bytes(column.code for column in columns),
            counted(metadata),
            bits([column.nullable for column in columns]),
            *(bytes([kind]) + counted(value) for kind, value in optional.items() if value),
        )
    )


def bits(flags: Sequence[bool]) -> bytes:
    """A bit set, least significant bit first, its unused bits set as the server sets them."""
    padded = [*flags, *[True] * (-len(flags) % 8)]
    return bytes(sum(flag << i for i, flag in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))


def image(values: Sequence[bytes | None]) -> bytes:
    """A row image of the present columns' bytes, None for NULL."""
    return bits([value is None for value in values]) + b"".join(value for value in values if value is not None)


def rows(
    table_id: int,
    width: int,
    images: bytes,
    *,
    before: Sequence[bool] | None = None,
    after: Sequence[bool] | None = None,
    flags: int = STMT_END,
) -> bytes:
    """The body of a rows event; `after` for an UPDATE only."""
    present = bits(before or [True] * width) + (bits(after) if after else b"")
    return table_id.to_bytes(6, "little") + struct.pack("<H", flags) + lenenc(width) + present + images


@dataclass
class Stream:
    """Events appended one by one; `bytes()` of it is a range."""

    checksum: bool = True
    sequence: int = 0
    parts: list[bytes] = field(default_factory=list)

    def event(self, kind: int, body: bytes, *, timestamp: int = 1_700_000_000, flags: int = 0) -> int:
        """Append an event, return the offset where it starts."""
        start = sum(map(len, self.parts))
        algorithm = ChecksumAlgorithm.CRC32 if self.checksum else ChecksumAlgorithm.NONE
        self.parts.append(encode_event(kind, body, server_id=9, checksum=algorithm, timestamp=timestamp, flags=flags))
        return start

    def gtid(self, flags: int = 0, rest: bytes = b"", *, domain: int = 3) -> int:
        self.sequence += 1
        body = struct.pack("<QIB", self.sequence, domain, flags) + rest
        return self.event(EventType.GTID, body.ljust(19, b"\0"))

    def xid(self, number: int = 77, timestamp: int = 1_700_000_001) -> int:
        return self.event(EventType.XID, struct.pack("<Q", number), timestamp=timestamp)

    def query(self, sql: bytes, database: bytes = b"d") -> int:
        head = struct.pack("<IIBHH", 1, 0, len(database), 0, 0)
        return self.event(EventType.QUERY, head + database + b"\0" + sql)

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def file(self) -> bytes:
        """The events as a binlog file: magic and FORMAT_DESCRIPTION in front."""
        head = Stream(checksum=True)
        head.event(EventType.FORMAT_DESCRIPTION, format_description(checksum=self.checksum))
        return BINLOG_MAGIC + bytes(head) + bytes(self)


def format_description(*, checksum: bool, table_map_length: int = 8) -> bytes:
    lengths = bytearray(171)
    known = {2: 13, 4: 8, 19: table_map_length, 23: 8, 24: 8, 25: 8, 26: 2, 30: 10, 162: 19, 163: 4, 165: 13}
    known |= dict.fromkeys((166, 167, 168), 8) | dict.fromkeys((31, 32, 39, 169, 170, 171), 10)
    for kind, length in known.items():
        lengths[kind - 1] = length
    return struct.pack("<H50sIB", 4, b"10.11.19-MariaDB-log", 0, 19) + lengths + bytes([checksum])
