"""Ranges with events in events, written out: payloads and fragments give the rows of the plain events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, EventType
from replica.protocol.events.binlog_file import walk
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.scan.expand import expand
from replica.rows.scan.scan import scan
from tests.kit.binlog import bodies
from tests.kit.binlog.bodies import block
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables
from tests.vectors.mysql.load import read

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = [Column("id", 3), Column("s", 15, b"\x10\0")]
TABLES = Tables({"d.t": None})
ROW = image([b"\1\0\0\0", b"\3abc"])
OTHER = image([b"\1\0\0\0", b"\4more"])


def members(checksum: bool) -> list[tuple[int, bytes]]:  # noqa: FBT001
    """Types and bodies of a transaction after its GTID."""
    update = rows(1, 2, ROW + OTHER, before=[True] * 2, after=[True] * 2)
    return [
        (EventType.TABLE_MAP, table_map(1, COLUMNS)),
        (INSERT, rows(1, 2, ROW * 30, flags=0)),
        (UPDATE, update),
        (EventType.XID, bodies.xid(77)),
    ]


def plain(*, checksum: bool) -> bytes:
    stream = Primary(checksum=checksum)
    for _ in range(2):
        stream.gtid()
        for kind, body in members(checksum):
            stream.event(kind, body)
    return bytes(stream)


def fragmented(*, checksum: bool, chunk: int = 33) -> bytes:
    """The same with every rows event in fragments."""
    stream = Primary(checksum=checksum)
    for _ in range(2):
        stream.gtid()
        for kind, body in members(checksum):
            if kind not in (INSERT, UPDATE):
                stream.event(kind, body)
                continue
            inner = Primary(checksum=False)
            inner.event(kind, body)
            for fragment in bodies.fragments(bytes(inner), chunk):
                stream.event(EventType.PARTIAL_ROW_DATA, fragment)
    return bytes(stream)


def payloads(*, checksum: bool, compressed: bool = True) -> bytes:
    """The same as MySQL would: a GTID_LOG event, then all the rest in a payload."""
    stream = Primary(checksum=checksum)
    for number in range(1, 3):
        stream.event(EventType.GTID_LOG, bodies.mysql_gtid(number))
        inner = Primary(checksum=False)
        inner.query(b"BEGIN")
        for kind, body in members(checksum):
            inner.event(kind, body)
        stream.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(bytes(inner), compressed=compressed))
    return bytes(stream)


def decoded(data: bytes, *, checksum: bool) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for batch in RangeDecoder(TABLES, DecodeOptions(shape="variant")).decode(data, checksum=checksum):
        sides = [array.to_pylist() for array in (*batch.before, *batch.after)]
        found += zip(
            batch.op.tolist(), batch.ordinal.tolist(), batch.groups.seq_no[batch.group].tolist(), *sides, strict=True
        )
    return found


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize(
    "make", [fragmented, payloads, lambda *, checksum: payloads(checksum=checksum, compressed=False)]
)
def test_the_rows_are_those_of_the_plain_events(make: Callable[..., bytes], checksum: bool) -> None:  # noqa: FBT001
    expected = decoded(plain(checksum=checksum), checksum=checksum)
    assert len(expected) == 62
    assert decoded(make(checksum=checksum), checksum=checksum) == expected
    groups, counts = count_rows(make(checksum=checksum), TABLES, checksum=checksum)
    assert counts.tolist() == [31, 31]
    assert len(groups) == 2


def test_compressed_rows_events_in_fragments() -> None:
    """log_bin_compress=ON with a threshold for fragments: the joined event is itself compressed."""
    stream, twin = Primary(), Primary()
    body = rows(1, 2, b"")
    for each in (stream, twin):
        each.gtid()
        each.event(EventType.TABLE_MAP, table_map(1, COLUMNS))
    inner = Primary(checksum=False)
    inner.event(EventType.WRITE_ROWS_COMPRESSED_V1, body + block(ROW * 50))
    for fragment in bodies.fragments(bytes(inner), 20):
        stream.event(EventType.PARTIAL_ROW_DATA, fragment)
    twin.event(INSERT, body + ROW * 50)
    for each in (stream, twin):
        each.xid()
    assert decoded(bytes(stream), checksum=True) == decoded(bytes(twin), checksum=True)


def test_every_event_of_a_file_and_where_it_stood() -> None:
    data = read("payload.binlog")
    found = scan(data, checksum=True)
    assert found.expansion is not None
    outer = [*(event.offset for event in walk(data)), len(data)]
    assert found.expansion.places[:, 1].tolist() == outer
    last = int(found.expansion.places[-2, 0])
    assert found.origin(last) == found.origin(last + 5) == outer[-2]
    assert found.origin(len(found.data)) == len(data)
    assert found.origin(0) == outer[0]
    written = [event.header.event_type for event in walk(BINLOG_MAGIC + bytes(found.data))]
    assert EventType.TRANSACTION_PAYLOAD not in written
    assert written.count(EventType.XID) == 4
    for event in walk(BINLOG_MAGIC + bytes(found.data)):
        assert event.description.checksum == 0


def test_errors_stand_where_the_outer_event_does() -> None:
    inner = Primary(checksum=False)
    inner.query(b"BEGIN")
    inner.event(INSERT, rows(9, 2, ROW))
    stream = Primary()
    stream.event(EventType.GTID_LOG, bodies.mysql_gtid(1))
    at = stream.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(bytes(inner)))
    with pytest.raises(ProtocolError, match="without its table map") as caught:
        scan(bytes(stream), checksum=True)
    assert caught.value.offset == at


def test_a_payload_in_a_payload_is_refused() -> None:
    inner = Primary(checksum=False)
    inner.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(b"x" * 30))
    stream = Primary()
    stream.event(EventType.GTID_LOG, bodies.mysql_gtid(1))
    stream.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(bytes(inner)))
    with pytest.raises(UnsupportedEventError, match=r"TRANSACTION_PAYLOAD \(40\) inside of another event"):
        scan(bytes(stream), checksum=True)


def test_a_payload_outside_of_a_group() -> None:
    stream = Primary()
    stream.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(b"x" * 30))
    with pytest.raises(ProtocolError, match="outside of an event group"):
        scan(bytes(stream), checksum=True)


def test_fragments_whose_rest_is_missing() -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.PARTIAL_ROW_DATA, bodies.fragments(b"x" * 40, 30)[0])
    stream.xid()
    with pytest.raises(TruncatedError, match="last fragments of a rows event are missing"):
        scan(bytes(stream), checksum=True)


def test_a_range_does_not_grow_beyond_the_limit() -> None:
    data = memoryview(payloads(checksum=True))
    whole = len(expand(data, checksum=True).data)
    assert len(expand(data, checksum=True, limit=whole).data) == whole
    with pytest.raises(ProtocolError, match=f"more than {whole - 1} bytes when they are decompressed"):
        expand(data, checksum=True, limit=whole - 1)


def test_every_truncation_is_an_error_of_ours() -> None:
    decoder = RangeDecoder(TABLES, DecodeOptions(shape="variant", reuse_buffers=True))
    for make in (fragmented, payloads):
        data = make(checksum=False)
        for end in range(1, len(data)):
            try:
                assert sum(batch.rows for batch in decoder.decode(data[:end], checksum=False)) <= 31
            except ProtocolError:
                continue
