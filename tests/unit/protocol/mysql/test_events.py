"""MySQL's GTID events: what its own tool lists, what older servers leave out, and damage."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise
from uuid import UUID

import pytest
import zstandard

from replica.errors import ProtocolError, ReplicaError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import MAX_EVENT_BYTES, EventType
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import MySqlGtidEvent, PreviousGtidsEvent, TransactionPayloadEvent
from replica.protocol.header import parse_header
from replica.protocol.mysql.events import Compression, GtidInterval, MySqlGtid
from tests.unit.protocol.events.decoding import decode_body
from tests.unit.protocol.mysql.wire_varlen import signed, unsigned
from tests.vectors.mysql.load import binlogs, listed_gtids, read

ID = UUID("c7bd07a0-e5c2-11f1-9704-02fc00000001")
OTHER = UUID("f1f2f3f4-8081-8283-ff00-7f8001020304")
FILES = [name for stem in ("groups", "payload", "types") for name in binlogs(stem)]


@pytest.mark.parametrize("name", FILES)
def test_gtids_are_those_that_mysqlbinlog_lists(name: str) -> None:
    events = [event for _, event in decode_file(read(name)) if isinstance(event, MySqlGtidEvent)]
    assert [str(event.gtid or "ANONYMOUS") for event in events] == listed_gtids(name)


@pytest.mark.parametrize("name", FILES)
def test_the_transaction_length_reaches_to_the_next_group(name: str) -> None:
    """A field near the end, right only if all before it are; the flag says what the group holds."""
    starts: list[tuple[int, MySqlGtidEvent]] = []
    end = 0
    for found, event in decode_file(read(name)):
        if isinstance(event, MySqlGtidEvent):
            starts.append((found.offset, event))
        if found.header.event_type not in (EventType.ROTATE, EventType.PREVIOUS_GTIDS, EventType.FORMAT_DESCRIPTION):
            end = found.end
    borders = [offset for offset, _ in starts] + [end]
    lengths = [after - before for before, after in pairwise(borders)]
    assert [event.transaction_length for _, event in starts] == lengths
    for _, event in starts:
        assert event.immediate_server_version == event.original_server_version == 90704
        assert event.immediate_commit_timestamp == event.original_commit_timestamp
        assert event.header.timestamp - (event.immediate_commit_timestamp or 0) // 1_000_000 in (-1, 0)


def test_sets_of_earlier_files_with_and_without_tags() -> None:
    (first,) = (e for _, e in decode_file(read("groups.1.binlog")) if isinstance(e, PreviousGtidsEvent))
    assert first.intervals == ()
    (second,) = (e for _, e in decode_file(read("groups.2.binlog")) if isinstance(e, PreviousGtidsEvent))
    mine = second.intervals[0].uuid
    assert second.intervals == (
        GtidInterval(mine, "", 1, 13),
        GtidInterval(mine, "nightly_job", 1, 1),
        GtidInterval(OTHER, "", (1 << 63) - 2, (1 << 63) - 2),
        GtidInterval(OTHER, "t", (1 << 53) + 1, (1 << 53) + 1),
    )
    assert str(second.intervals[0]) == f"{mine}:1-13"
    assert str(second.intervals[1]) == f"{mine}:nightly_job:1"
    plain = struct.pack("<Q16sQ4Q", 1, ID.bytes, 2, 1, 6, 8, 9)
    event = decode_body(PreviousGtidsEvent, EventType.PREVIOUS_GTIDS, plain)
    assert list(map(str, event.intervals)) == [f"{ID}:1-5", f"{ID}:8"]


def test_a_damaged_count_ends_with_the_bytes() -> None:
    for body in (struct.pack("<Q", (1 << 56) - 1), struct.pack("<Q16sQ", 1, ID.bytes, (1 << 63))):
        with pytest.raises(ProtocolError, match="bytes wanted"):
            decode_body(PreviousGtidsEvent, EventType.PREVIOUS_GTIDS, body)


def test_events_of_servers_that_knew_fewer_fields() -> None:
    body = b"\x01" + ID.bytes + struct.pack("<Q", 5)
    event = decode_body(MySqlGtidEvent, EventType.GTID_LOG, body)  # 5.6
    assert (event.gtid, event.may_have_statements, event.last_committed) == (MySqlGtid(ID, 5), True, None)
    body += struct.pack("<BQQ", 2, 3, 4)
    event = decode_body(MySqlGtidEvent, EventType.GTID_LOG, body)  # 5.7
    assert (event.last_committed, event.sequence_number, event.transaction_length) == (3, 4, None)
    body += (1_700_000_000_000_000 | 1 << 55).to_bytes(7, "little") + (1_600_000_000_000_000).to_bytes(7, "little")
    body += b"\xfc\x00\x10" + struct.pack("<II", 80020 | 1 << 31, 80019)
    event = decode_body(MySqlGtidEvent, EventType.ANONYMOUS_GTID, body)  # 8.0, replicated from an older one
    assert event.gtid is None
    assert event.immediate_commit_timestamp == 1_700_000_000_000_000
    assert event.original_commit_timestamp == 1_600_000_000_000_000
    assert (event.immediate_server_version, event.original_server_version) == (80020, 80019)
    assert event.transaction_length == 4096
    event = decode_body(MySqlGtidEvent, EventType.GTID_LOG, body + struct.pack("<Q", 9))
    assert event.commit_group_ticket == 9


def tagged(fields: dict[int, bytes], *, version: int = 1, needed: int = 0, size: int | None = None) -> bytes:
    content = unsigned(needed) + b"".join(unsigned(number) + value for number, value in fields.items())
    head = unsigned(version)
    length = len(head) + len(content) + (1 if len(content) < 125 else 2)
    return head + unsigned(length if size is None else size) + content


ID_FIELD = b"".join(map(unsigned, ID.bytes))


def test_tagged_fields_that_differ_from_their_defaults() -> None:
    fields = {0: unsigned(1), 1: ID_FIELD, 2: signed(7), 3: unsigned(3) + b"tag", 4: signed(-1), 5: signed(2)}
    fields |= {6: unsigned(1 << 50), 7: unsigned(1 << 49), 8: unsigned(300), 9: unsigned(90000), 10: unsigned(80300)}
    event = decode_body(MySqlGtidEvent, EventType.GTID_TAGGED_LOG, tagged(fields | {11: unsigned(1 << 63)}))
    assert event.gtid == MySqlGtid(ID, 7, "tag")
    assert event.may_have_statements
    assert (event.last_committed, event.sequence_number, event.transaction_length) == (-1, 2, 300)
    assert (event.immediate_commit_timestamp, event.original_commit_timestamp) == (1 << 50, 1 << 49)
    assert (event.immediate_server_version, event.original_server_version) == (90000, 80300)
    assert event.commit_group_ticket == 1 << 63


def test_fields_of_a_later_server_are_passed_when_it_allows_that() -> None:
    fields = {1: ID_FIELD, 2: signed(7), 12: b"whatever"}
    assert decode_body(MySqlGtidEvent, EventType.GTID_TAGGED_LOG, tagged(fields)).gtid == MySqlGtid(ID, 7)
    with pytest.raises(ProtocolError, match="must be read with field 13"):
        decode_body(MySqlGtidEvent, EventType.GTID_TAGGED_LOG, tagged(fields, needed=13))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (tagged({1: ID_FIELD}, version=2), "serialization version 2"),
        (tagged({1: ID_FIELD}, size=1 << 40), "1099511627776 bytes"),
        (tagged({0: unsigned(1)}), "without a uuid"),
        (tagged({1: unsigned(256) * 16}), "byte above 255"),
        (tagged({1: ID_FIELD, 3: unsigned(33) + b"t" * 33}), "tag of 33"),
    ],
)
def test_refusals(body: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode_body(MySqlGtidEvent, EventType.GTID_TAGGED_LOG, body)


def test_every_truncation_raises_our_errors_only() -> None:
    for name in FILES:
        for found, event in decode_file(read(name)):
            if not isinstance(event, MySqlGtidEvent | PreviousGtidsEvent):
                continue
            body = bytes(found.event[19:-4])
            for end in range(len(body)):
                try:
                    decode_body(type(event), EventType(found.header.event_type), body[:end])
                except ReplicaError:
                    continue


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
def test_refusals_of_payloads(body: bytes, message: str) -> None:
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
