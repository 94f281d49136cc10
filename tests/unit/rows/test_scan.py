from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import EventType
from replica.rows import records as r
from replica.rows.batch import Groups
from replica.rows.scan import Scan, scan
from tests.unit.rows.stream import DELETE, INSERT, UPDATE, Column, Stream, format_description, image, rows, table_map

if TYPE_CHECKING:
    from collections.abc import Callable

INT = Column("id", 3)
ONE = image([b"\x01\0\0\0"])


def column(found: Scan, name: str) -> list[int]:
    field = getattr(r, name)
    kind = name.partition("_")[0]
    records = {"GROUP": found.groups, "EVENT": found.events, "MAP": found.maps}[kind]
    return [int(value) for value in r.column(records, field)]


def transaction(stream: Stream, table: str = "t", *, op: int = INSERT, table_id: int = 7) -> None:
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(table_id, [INT], table=table))
    after = [True] if op == UPDATE else None
    stream.event(op, rows(table_id, 1, ONE * (2 if op == UPDATE else 1), after=after))
    stream.xid()


@pytest.mark.parametrize("checksum", [True, False])
def test_a_transaction_becomes_one_group_with_its_rows_events(*, checksum: bool) -> None:
    stream = Stream(checksum=checksum)
    start = stream.gtid(2 | 8, struct.pack("<Q", 55))
    stream.event(EventType.ANNOTATE_ROWS, b"insert into t values (1)")
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    rows_at = stream.event(INSERT, rows(7, 1, ONE * 3))
    stream.xid(1234, timestamp=1_700_000_009)
    data = bytes(stream)

    found = scan(data, checksum=checksum)

    groups = Groups(found.groups)
    assert (groups.domain[0], groups.server_id[0], groups.seq_no[0]) == (3, 9, 1)
    assert groups.commit_ts[0] == 1_700_000_009, "the commit's second, not the first statement's"
    assert (groups.flags[0], groups.commit_id[0], groups.xid[0], groups.thread_id[0]) == (10, 55, 1234, 0)
    assert (groups.start[0], groups.end[0]) == (start, len(data))
    assert column(found, "EVENT_START") == [rows_at]
    (images,), (end,) = column(found, "EVENT_IMAGES"), column(found, "EVENT_END")
    assert data[images:end] == ONE * 3
    (sql,), (sql_end,) = column(found, "EVENT_SQL"), column(found, "EVENT_SQL_END")
    assert data[sql:sql_end] == b"insert into t values (1)"


def test_update_names_both_bitmaps_and_the_three_kinds_are_told_apart() -> None:
    stream = Stream()
    for op in (INSERT, UPDATE, DELETE):
        transaction(stream, op=op)

    found = scan(bytes(stream), checksum=True)

    assert column(found, "EVENT_OP") == [r.OP_INSERT, r.OP_UPDATE, r.OP_DELETE]
    before, after = column(found, "EVENT_BEFORE"), column(found, "EVENT_AFTER")
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 0]


def test_optional_fields_of_the_gtid_event_stand_behind_each_other() -> None:
    stream = Stream()
    xid_data = struct.pack("<IBB", 1, 2, 3) + b"abcde"
    extra = bytes([1 | 4 | 16]) + b"\x02" + struct.pack("<QI", 17, 4242)
    stream.gtid(2 | 128, struct.pack("<Q", 99) + xid_data + extra + bytes(3000))
    stream.query(b"COMMIT")

    groups = Groups(scan(bytes(stream), checksum=True).groups)

    assert (groups.commit_id[0], groups.thread_id[0]) == (99, 4242)


@pytest.mark.parametrize(
    ("end", "ending"),
    [
        (lambda s: s.xid(), r.ENDS_XID),
        (lambda s: s.query(b"COMMIT"), r.ENDS_COMMIT),
        (lambda s: s.query(b"ROLLBACK"), r.ENDS_ROLLBACK),
        (lambda s: s.event(EventType.XA_PREPARE, bytes(13)), r.ENDS_XA_PREPARE),
    ],
)
def test_what_ends_a_transaction(end: Callable[[Stream], int], ending: int) -> None:
    stream = Stream()
    stream.gtid()
    stream.query(b"INSERT INTO s VALUES (1) -- COMMIT")  # ends with the word, but is not the statement COMMIT
    stream.query(b"SAVEPOINT ROLLBACK")
    stream.event(EventType.QUERY_COMPRESSED, bytes(20))
    end(stream)
    assert column(scan(bytes(stream), checksum=True), "GROUP_ENDING") == [ending]


def test_a_rolled_back_group_stays_without_its_rows() -> None:
    stream = Stream()
    transaction(stream)
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.query(b"ROLLBACK")
    transaction(stream)
    found = scan(bytes(stream), checksum=True)
    assert column(found, "GROUP_SEQUENCE") == [1, 2, 3]
    assert column(found, "EVENT_GROUP") == [0, 2]


@pytest.mark.parametrize("kind", [EventType.QUERY, EventType.QUERY_COMPRESSED])
def test_a_standalone_group_ends_with_its_first_query(kind: int) -> None:
    stream = Stream()
    stream.gtid(1)
    stream.event(EventType.INTVAR, bytes(9))
    stream.event(kind, bytes(13) + b"\0CREATE TABLE x (a INT)")
    transaction(stream)
    assert column(scan(bytes(stream), checksum=True), "GROUP_ENDING") == [r.ENDS_STANDALONE, r.ENDS_XID]


def test_events_about_the_log_itself_are_passed_wherever_they_stand() -> None:
    stream = Stream()
    stream.event(EventType.ROTATE, bytes(8) + b"bin.000001")
    stream.event(EventType.GTID_LIST, bytes(6))
    stream.event(EventType.BINLOG_CHECKPOINT, struct.pack("<I", 3) + b"bin")
    stream.gtid()
    stream.event(EventType.HEARTBEAT, b"bin.000001")
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.xid()
    stream.event(200, b"whatever", flags=0x80)
    stream.event(EventType.STOP, b"")
    found = scan(bytes(stream), checksum=True)
    assert (len(found.groups), len(found.events)) == (1, 1)


def test_a_group_that_a_crash_cut_short_never_happened() -> None:
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    transaction(stream)
    found = scan(bytes(stream), checksum=True)
    assert found.cut_groups == 1
    assert Groups(found.groups).seq_no.tolist() == [2]
    assert (column(found, "EVENT_GROUP"), column(found, "GROUP_FIRST"), column(found, "GROUP_LAST")) == ([0], [0], [1])


def test_table_maps_are_known_by_content_and_never_by_id() -> None:
    stream = Stream()
    transaction(stream, "a", table_id=7)
    transaction(stream, "b", table_id=7)  # the id was given to another table
    transaction(stream, "a", table_id=99)
    found = scan(bytes(stream), checksum=True)
    assert column(found, "EVENT_SLOT") == [0, 1, 0]
    assert [bytes(found.table_map_body(slot))[8:] for slot in (0, 1)] == [
        table_map(0, [INT], table=t)[8:] for t in "ab"
    ]


def test_thousands_of_tables_in_one_range_outgrow_every_first_size() -> None:
    stream = Stream()
    for number in range(700):
        transaction(stream, f"t{number % 350}", table_id=number)
    found = scan(bytes(stream), checksum=True)
    assert len(found.groups) == len(found.events) == 700
    assert column(found, "EVENT_SLOT") == [number % 350 for number in range(700)]
    assert len(found.maps) == 350


def test_several_tables_in_one_statement_and_none_beyond_its_end() -> None:
    stream = Stream()
    stream.gtid()
    for number in (1, 2):
        stream.event(EventType.TABLE_MAP, table_map(number, [INT], table=f"t{number}"))
    stream.event(INSERT, rows(2, 1, ONE, flags=0))
    stream.event(INSERT, rows(1, 1, ONE))
    late = stream.event(INSERT, rows(2, 1, ONE))
    stream.xid()
    data = bytes(stream)
    with pytest.raises(ProtocolError, match="without its table map") as caught:
        scan(data, checksum=True)
    assert caught.value.offset == late


def test_a_dummy_rows_event_only_ends_the_statement() -> None:
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE, flags=0))
    stream.event(INSERT, rows(0xFFFFFF, 0, b""))
    stream.xid()
    assert len(scan(bytes(stream), checksum=True).events) == 1


def test_format_description_says_how_it_goes_on() -> None:
    stream = Stream(checksum=True)
    transaction(stream)
    stream.event(EventType.FORMAT_DESCRIPTION, format_description(checksum=False))  # its own CRC is always there
    stream.checksum = False
    transaction(stream)
    found = scan(b"\xfebin" + bytes(stream), checksum=True)
    assert (len(found.groups), found.trailer) == (2, 0)
    old = Stream()
    old.event(EventType.FORMAT_DESCRIPTION, format_description(checksum=True, table_map_length=6))  # 4-byte table ids
    with pytest.raises(ProtocolError, match="malformed"):
        scan(bytes(old), checksum=True)


@pytest.mark.parametrize(
    ("kind", "body", "error", "words"),
    [
        (EventType.WRITE_ROWS_COMPRESSED_V1, bytes(30), UnsupportedEventError, "compressed rows event"),
        (EventType.DELETE_ROWS_COMPRESSED, bytes(30), UnsupportedEventError, "compressed rows event"),
        (20, bytes(30), UnsupportedEventError, "event type 20 is unknown"),
        (172, bytes(30), UnsupportedEventError, "event type 172 is unknown"),
        (39, bytes(30), UnsupportedEventError, "event type 39"),
        (EventType.INCIDENT, b"\x01\0\x04lost", ProtocolError, "lost events"),
        (EventType.START_ENCRYPTION, bytes(17), UnsupportedEventError, "encrypted"),
        (INSERT, rows(8, 1, ONE), ProtocolError, "without its table map"),
        (INSERT, b"\x07", ProtocolError, "malformed"),
        (INSERT, rows(7, 4097, b""), ProtocolError, "malformed"),
        (EventType.TABLE_MAP, b"\x07", ProtocolError, "malformed"),
        (EventType.GTID, b"\x07", ProtocolError, "malformed"),
        (EventType.XID, b"\x07", ProtocolError, "malformed"),
        (EventType.QUERY, b"\x07", ProtocolError, "malformed"),
    ],
)
def test_what_must_not_be_passed_is_refused_where_it_stands(
    kind: int, body: bytes, error: type[ReplicaError], words: str
) -> None:
    stream = Stream()
    transaction(stream)
    stream.gtid()
    at = stream.event(kind, body)
    stream.xid()
    with pytest.raises(error, match=words) as caught:
        scan(bytes(stream), checksum=True)
    assert isinstance(caught.value, ProtocolError)
    assert caught.value.offset == at
    assert caught.value.hint or error is ProtocolError


@pytest.mark.parametrize("kind", [INSERT, EventType.TABLE_MAP, EventType.XID, EventType.QUERY, EventType.XA_PREPARE])
def test_members_of_a_group_outside_of_one_are_refused(kind: int) -> None:
    stream = Stream()
    stream.event(kind, bytes(30))
    with pytest.raises(ProtocolError, match="outside an event group"):
        scan(bytes(stream), checksum=True)


def test_a_group_without_end_is_refused_and_nothing_is_no_group() -> None:
    stream = Stream()
    stream.gtid()
    with pytest.raises(TruncatedError, match="no end"):
        scan(bytes(stream), checksum=True)
    assert len(scan(b"", checksum=True).groups) == 0


def test_only_contiguous_bytes_are_scanned() -> None:
    np = pytest.importorskip("numpy")
    with pytest.raises(ValueError, match="contiguous"):
        scan(np.zeros(64, np.uint8)[::2], checksum=True)


def sample() -> bytes:
    stream = Stream()
    stream.gtid(2 | 64, struct.pack("<Q", 1) + struct.pack("<IBB", 1, 2, 3) + b"abcde" + b"\x10" + bytes(4))
    stream.event(EventType.ANNOTATE_ROWS, b"update t")
    stream.event(EventType.TABLE_MAP, table_map(7, [INT, Column("c", 15, b"\x0a\0")]))
    stream.event(UPDATE, rows(7, 2, image([b"\x01\0\0\0", b"\x01x"]) * 2, after=[True, True]))
    stream.xid()
    return bytes(stream)


SAMPLE = sample()


def test_every_truncation_is_a_typed_error() -> None:
    for size in range(1, len(SAMPLE)):
        with pytest.raises(TruncatedError):
            scan(SAMPLE[:size], checksum=True)


@settings(max_examples=500)
@given(
    damage=st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    checksum=st.booleans(),
)
def test_no_damage_makes_anything_but_a_typed_error(damage: list[tuple[int, int]], *, checksum: bool) -> None:
    data = bytearray(SAMPLE)
    for offset, byte in damage:
        data[offset] = byte
    try:
        found = scan(data, checksum=checksum)
    except ProtocolError as error:
        assert error.offset is not None  # noqa: PT017  (some damage is none)
        return
    for start, end in zip(column(found, "EVENT_IMAGES"), column(found, "EVENT_END"), strict=True):
        assert 0 < start < end <= len(data)
