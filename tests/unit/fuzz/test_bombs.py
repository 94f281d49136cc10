"""Small events that claim a lot: each is refused, and nothing of what it claims is allocated."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard

from replica.errors import ReplicaError
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.events.decode import TransactionPayloadEvent, decode
from replica.protocol.mysql.binary_json import parse_json
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.scan.scan import scan
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, rows, table_map
from tests.unit.protocol.events.decoding import DESCRIPTION
from tests.unit.protocol.mysql.wire_varlen import unsigned
from tests.unit.rows.twin import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND = 24 << 20
"""What a decoder and its buffers take; the claims and what could come out are far beyond."""
HUGE = (1 << 32) - 1
QUERY_HEAD = bodies.query(b"")
ZEROS = bytes(64 << 20)
DEFLATED = zlib.compress(ZEROS, 9)
ZSTD = zstandard.ZstdCompressor(level=19).compress(ZEROS)


def block(size: int, data: bytes = DEFLATED) -> bytes:
    return b"\x84" + size.to_bytes(4, "big") + data


def peak(action: Callable[[], object]) -> int:
    """Bytes at most, beside what compiling kernels takes."""
    action()
    tracemalloc.start()
    try:
        action()
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


EVENTS = {
    "compressed query, largest claim": (EventType.QUERY_COMPRESSED, QUERY_HEAD + block(HUGE)),
    "compressed query, small claim": (EventType.QUERY_COMPRESSED, QUERY_HEAD + block(100)),
    "compressed query of few bytes": (EventType.QUERY_COMPRESSED, QUERY_HEAD + block(1 << 29, DEFLATED[:100])),
    "GTIDs of a list": (EventType.GTID_LIST, struct.pack("<I", 0x0FFFFFFF)),
    "sets of earlier files": (EventType.PREVIOUS_GTIDS, struct.pack("<Q", (1 << 56) - 1)),
    "intervals of a set": (EventType.PREVIOUS_GTIDS, struct.pack("<Q16sQ", 1, bytes(16), 1 << 62)),
    "columns": (EventType.TABLE_MAP, bytes(8) + b"\1d\0\1t\0" + b"\xfe" + struct.pack("<Q", 1 << 62)),
    "labels": (EventType.TABLE_MAP, table_map(1, [Column("e", 254, b"\xf7\1")])[:-4] + b"\6\x0a\xfe" + b"\xff" * 8),
    "a rows event's columns": (EventType.WRITE_ROWS_V1, bytes(8) + b"\xfe" + b"\xff" * 8),
    "a name": (EventType.USER_VAR, struct.pack("<I", HUGE)),
    "fields of a tagged GTID": (EventType.GTID_TAGGED_LOG, unsigned(1) + unsigned(1 << 60) + unsigned(0)),
    "a tag": (EventType.GTID_TAGGED_LOG, unsigned(1) + unsigned(9) + unsigned(0) + unsigned(3) + unsigned(1 << 40)),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_claims_more_than_it_has(name: str) -> None:
    kind, body = EVENTS[name]
    raw = encode_event(kind, body, server_id=1, checksum=ChecksumAlgorithm.NONE)

    def read() -> None:
        with pytest.raises(ReplicaError):
            decode(raw, DESCRIPTION)

    assert peak(read) < BOUND


@pytest.mark.parametrize("claimed", [100, 1 << 29, HUGE, 1 << 62])
def test_a_transaction_in_a_payload(claimed: int) -> None:
    fields = b"\2\1\0" + b"\3\x09\xfe" + struct.pack("<Q", claimed) + b"\0"
    raw = encode_event(EventType.TRANSACTION_PAYLOAD, fields + ZSTD[:400], server_id=1, checksum=ChecksumAlgorithm.NONE)
    event = decode(raw, DESCRIPTION)
    assert isinstance(event, TransactionPayloadEvent)

    def read() -> None:
        with pytest.raises(ReplicaError):
            event.events()

    assert peak(read) < BOUND


def test_payloads_that_are_bombs_together() -> None:
    """The largest that there may be, and one small transaction too many: refused before it is decompressed."""
    fields = b"\2\1\0" + b"\3\x09\xfe" + struct.pack("<Q", 1 << 30) + b"\0"
    stream = Primary()
    stream.event(EventType.GTID_LOG, bodies.mysql_gtid(1))
    stream.query(b"DDL")
    stream.event(EventType.GTID_LOG, bodies.mysql_gtid(2))
    stream.event(EventType.TRANSACTION_PAYLOAD, fields + ZSTD)

    def read() -> None:
        with pytest.raises(ReplicaError, match="more than 1073741824 bytes when they are decompressed"):
            scan(bytes(stream), checksum=True)

    assert peak(read) < BOUND


@pytest.mark.parametrize("claimed", [100, 1 << 20, (1 << 31) - 2, HUGE])
def test_images_of_a_compressed_rows_event(claimed: int) -> None:
    stream = Primary()
    stream.rows(
        table_map(1, [Column("id", 3)]),
        (EventType.WRITE_ROWS_COMPRESSED_V1, rows(1, 1, b"") + block(claimed, DEFLATED[:2000])),
    )
    decoder = RangeDecoder(Tables({"d.t": None}), DecodeOptions(shape="variant"))

    def read() -> None:
        with pytest.raises(ReplicaError):
            list(decoder.decode(bytes(stream), checksum=True))

    assert peak(read) < BOUND


@pytest.mark.parametrize("column", [Column("b", 140, b"\4"), Column("v", 141, b"\xff\xff")], ids=["BLOB", "VARCHAR"])
@pytest.mark.parametrize("claimed", [100, 1 << 20, HUGE])
def test_a_compressed_column(column: Column, claimed: int) -> None:
    value = b"\x8c" + claimed.to_bytes(4, "big") + DEFLATED[2:2000]
    prefix = 4 if column.code == 140 else 2
    stream = Primary()
    stream.rows(table_map(1, [column]), (INSERT, rows(1, 1, b"\0" + len(value).to_bytes(prefix, "little") + value)))
    decoder = RangeDecoder(Tables({"d.t": None}), DecodeOptions(shape="variant"))

    def read() -> None:
        with pytest.raises(ReplicaError):
            list(decoder.decode(bytes(stream), checksum=True))

    assert peak(read) < BOUND


def test_a_json_document_of_many_values_in_few_bytes() -> None:
    for document in (
        b"\3" + struct.pack("<II", HUGE, HUGE),
        b"\2" + struct.pack("<HH", 65535, 65535),
        b"\x0c" + b"\xff" * 4 + b"\7",
    ):

        def read(document: bytes = document) -> None:
            with pytest.raises(ReplicaError):
                parse_json(document)

        assert peak(read) < BOUND
