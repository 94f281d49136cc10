"""TRANSACTION_PAYLOAD: real ones, uncompressed ones, and everything that would take memory it should not."""

from __future__ import annotations

import tracemalloc

import pytest
import zstandard

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import MAX_EVENT_BYTES, EventType
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import TransactionPayloadEvent
from replica.protocol.header import parse_header
from replica.protocol.mysql.transaction_payload import Compression
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.mysql.load import read


def payload(data: bytes, size: int, compression: int = Compression.ZSTD, *, claimed: int | None = None) -> bytes:
    numbers = (1, len(data) if claimed is None else claimed), (2, compression), (3, size)
    fields = b"".join(bytes([kind, 9, 0xFE]) + number.to_bytes(8, "little") for kind, number in numbers)
    return fields + b"\0" + data


def event(body: bytes) -> TransactionPayloadEvent:
    return decode_body(TransactionPayloadEvent, EventType.TRANSACTION_PAYLOAD, body)


def test_the_events_of_real_transactions() -> None:
    kinds = []
    for _, found in decode_file(read("payload.binlog")):
        if isinstance(found, TransactionPayloadEvent):
            data, at = found.events(), 0
            while at < len(data):
                header = parse_header(data, at)
                kinds.append(header.event_type)
                at += header.event_length
            assert at == len(data) == found.uncompressed_size
    assert kinds == [2, 29, 19, 30, 16, 2, 29, 19, 30, 29, 19, 39, 29, 19, 39, 16, 2, 29, 19, 32, 16]


def test_compressed_and_not() -> None:
    data = b"events" * 100
    compressed = zstandard.ZstdCompressor().compress(data)
    assert event(payload(compressed, len(data))).events() == data
    assert event(payload(data, len(data), Compression.NONE)).events() == data
    assert event(b"\0" + data).events() == data  # no field at all: what follows is what it is
    assert event(b"\x09\2xx" + payload(data, len(data), Compression.NONE)).events() == data  # a later server's field


def test_several_frames_are_one_payload() -> None:
    frames = zstandard.ZstdCompressor().compress(b"a" * 10) + zstandard.ZstdCompressor().compress(b"b" * 10)
    assert event(payload(frames, 20)).events() == b"a" * 10 + b"b" * 10
    for data, size in ((frames, 10), (frames + b"garbage", 20)):
        with pytest.raises(ProtocolError, match="decompress"):
            event(payload(data, size)).events()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (payload(b"x" * 40, 41, Compression.NONE), "40 bytes that claims 41"),
        (payload(b"x" * 40, MAX_EVENT_BYTES + 1), "at most 1073741824 are allowed"),
        (payload(b"x" * 40, (40 << 15) + 1), "40 bytes claims to hold"),
        (payload(b"x" * 40, 1000), "cannot be decompressed"),
        (payload(b"", 0, 7), "algorithm 7"),
    ],
)
def test_refusals(body: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        event(body).events()


def test_an_unknown_algorithm_is_named_as_unsupported() -> None:
    with pytest.raises(UnsupportedEventError):
        event(payload(b"data", 4, 3)).events()


def test_truncated() -> None:
    compressed = zstandard.ZstdCompressor().compress(b"events" * 1000)
    for end in range(len(compressed)):
        with pytest.raises(ProtocolError):
            event(payload(compressed[:end], 6000)).events()
    with pytest.raises(TruncatedError, match="100 bytes, 5 are left"):
        event(payload(b"short", 5, claimed=100))


@pytest.mark.parametrize("claimed", [100, 1 << 20])
def test_a_bomb_takes_no_more_than_it_claims(claimed: int) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    assert len(bomb) < 10_000
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="does not decompress"):
        event(payload(bomb, claimed)).events()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
