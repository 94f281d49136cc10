from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import EventType
from replica.rows.decode.batch import Groups
from replica.rows.scan import records as r
from replica.rows.scan.scan import Scan, scan, scan_until
from tests.kit.binlog.bodies import format_description
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from collections.abc import Callable

INT = Column("id", 3)
ONE = image([b"\x01\0\0\0"])


def column(found: Scan, name: str) -> list[int]:
    kind, _, field = name.partition(".")
    records = {"group": found.groups, "event": found.events, "map": found.maps}[kind]
    return [int(value) for value in records[field]]


def transaction(stream: Primary, table: str = "t", *, op: int = INSERT, table_id: int = 7) -> None:
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(table_id, [INT], table=table))
    after = [True] if op == UPDATE else None
    stream.event(op, rows(table_id, 1, ONE * (2 if op == UPDATE else 1), after=after))
    stream.xid()


@pytest.mark.parametrize("checksum", [True, False])
def test_a_transaction_becomes_one_group_with_its_rows_events(*, checksum: bool) -> None:
    stream = Primary(checksum=checksum)
    start = stream.gtid(None, 2 | 8, struct.pack("<Q", 55))
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
    assert column(found, "event.start") == [rows_at]
    (images,), (end,) = column(found, "event.images"), column(found, "event.end")
    assert data[images:end] == ONE * 3
    (sql,), (sql_end,) = column(found, "event.sql"), column(found, "event.sql_end")
    assert data[sql:sql_end] == b"insert into t values (1)"


def test_update_names_both_bitmaps_and_the_three_kinds_are_told_apart() -> None:
    stream = Primary()
    for op in (INSERT, UPDATE, DELETE):
        transaction(stream, op=op)

    found = scan(bytes(stream), checksum=True)

    assert column(found, "event.op") == [r.OP_INSERT, r.OP_UPDATE, r.OP_DELETE]
    before, after = column(found, "event.before"), column(found, "event.after")
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 0]


def test_optional_fields_of_the_gtid_event_stand_behind_each_other() -> None:
    stream = Primary()
    xid_data = struct.pack("<IBB", 1, 2, 3) + b"abcde"
    extra = bytes([1 | 4 | 16]) + b"\x02" + struct.pack("<QI", 17, 4242)
    stream.gtid(None, 2 | 128, struct.pack("<Q", 99) + xid_data + extra + bytes(3000))
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
def test_what_ends_a_transaction(end: Callable[[Primary], int], ending: int) -> None:
    stream = Primary()
    stream.gtid()
    stream.query(b"INSERT INTO s VALUES (1) -- COMMIT")  # ends with the word, but is not the statement COMMIT
    stream.query(b"SAVEPOINT ROLLBACK")
    stream.event(EventType.QUERY_COMPRESSED, bytes(20))
    end(stream)
    assert column(scan(bytes(stream), checksum=True), "group.ending") == [ending]


def test_a_rolled_back_group_stays_without_its_rows() -> None:
    stream = Primary()
    transaction(stream)
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.query(b"ROLLBACK")
    transaction(stream)
    found = scan(bytes(stream), checksum=True)
    assert column(found, "group.sequence") == [1, 2, 3]
    assert column(found, "event.group") == [0, 2]


@pytest.mark.parametrize("kind", [EventType.QUERY, EventType.QUERY_COMPRESSED])
def test_a_standalone_group_ends_with_its_first_query(kind: int) -> None:
    stream = Primary()
    stream.gtid(None, 1)
    stream.event(EventType.INTVAR, bytes(9))
    stream.event(kind, bytes(13) + b"\0CREATE TABLE x (a INT)")
    transaction(stream)
    assert column(scan(bytes(stream), checksum=True), "group.ending") == [r.ENDS_STANDALONE, r.ENDS_XID]


def test_events_about_the_log_itself_are_passed_wherever_they_stand() -> None:
    stream = Primary()
    stream.event(EventType.ROTATE, bytes(8) + b"bin.000001")
    stream.event(EventType.GTID_LIST, bytes(6))
    stream.checkpoint()
    stream.gtid()
    stream.event(EventType.HEARTBEAT, b"bin.000001")
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.xid()
    stream.event(EventType.STOP, b"")
    found = scan(bytes(stream), checksum=True)
    assert (len(found.groups), len(found.events), found.skipped) == (1, 1, {})


def test_unknown_events_that_may_be_ignored_are_counted_by_type() -> None:
    stream = Primary()
    transaction(stream)
    for kind in (200, 255, 200, 0, EventType.IGNORABLE):
        stream.event(kind, b"whatever", flags=0x80)
    transaction(stream)
    found = scan(bytes(stream), checksum=True)
    assert found.skipped == {0: 1, 28: 1, 200: 2, 255: 1}
    assert len(found.groups) == 2


@pytest.mark.parametrize("kind", [166, 167, 168, 169, 170, 171, 39, 31, 23])
def test_a_record_says_in_which_form_its_images_are(kind: int) -> None:
    op = UPDATE if kind in (167, 170, 39, 31) else INSERT
    extra = b"" if kind in (23, 166, 167, 168) else b"\x02\0"  # version 2: the length counts itself
    body = rows(7, 1, b"block", after=[True] if op == UPDATE else None)
    stream = Primary()
    stream.rows(table_map(7, [INT]), (kind, body[:8] + extra + body[8:]))
    data = bytes(stream)
    found = scan(data, checksum=True)
    form = {39: r.FORM_PARTIAL, 31: r.FORM_PLAIN, 23: r.FORM_PLAIN}.get(kind, r.FORM_COMPRESSED)
    assert column(found, "event.form") == [form]
    operations = {23: 0, 31: 1, 39: 1, 166: 0, 167: 1, 168: 2, 169: 0, 170: 1, 171: 2}
    assert column(found, "event.op") == [operations[kind]]
    (images,), (end,) = column(found, "event.images"), column(found, "event.end")
    assert data[images:end] == b"block"


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 300])
def test_a_record_says_whether_its_images_are_whole(width: int) -> None:
    columns = [Column(f"c{i}", 1) for i in range(width)]
    whole = [True] * width
    lacking = [[i != missing for i in range(width)] for missing in {0, width // 2, width - 1}]
    sides = [(whole, whole), *((side, whole) for side in lacking), *((whole, side) for side in lacking)]
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, columns))
    for before, after in sides:
        stream.event(UPDATE, rows(7, width, b"images", before=before, after=after, flags=0))
    stream.xid()
    assert column(scan(bytes(stream), checksum=True), "event.whole") == [1] + [0] * (len(sides) - 1)


def test_a_group_that_a_crash_cut_short_never_happened() -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    transaction(stream)
    found = scan(bytes(stream), checksum=True)
    assert found.cut_groups == 1
    assert Groups(found.groups).seq_no.tolist() == [2]
    assert (column(found, "event.group"), column(found, "group.first"), column(found, "group.last")) == (
        [0],
        [0],
        [1],
    )


def test_table_maps_are_known_by_content_and_never_by_id() -> None:
    stream = Primary()
    transaction(stream, "a", table_id=7)
    transaction(stream, "b", table_id=7)  # the id was given to another table
    transaction(stream, "a", table_id=99)
    found = scan(bytes(stream), checksum=True)
    assert column(found, "event.slot") == [0, 1, 0]
    assert [bytes(found.table_map_body(slot))[8:] for slot in (0, 1)] == [
        table_map(0, [INT], table=t)[8:] for t in "ab"
    ]


def test_thousands_of_tables_in_one_range_outgrow_every_first_size() -> None:
    stream = Primary()
    for number in range(700):
        transaction(stream, f"t{number % 350}", table_id=number)
    found = scan(bytes(stream), checksum=True)
    assert len(found.groups) == len(found.events) == 700
    assert column(found, "event.slot") == [number % 350 for number in range(700)]
    assert len(found.maps) == 350


def test_several_tables_in_one_statement_and_none_beyond_its_end() -> None:
    stream = Primary()
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
    stream = Primary()
    stream.rows(table_map(7, [INT]), (INSERT, rows(7, 1, ONE, flags=0)), (INSERT, rows(0xFFFFFF, 0, b"")))
    assert len(scan(bytes(stream), checksum=True).events) == 1


def test_format_description_says_how_it_goes_on() -> None:
    stream = Primary(checksum=True)
    transaction(stream)
    stream.event(EventType.FORMAT_DESCRIPTION, format_description(False))  # its own CRC is always there
    stream.checksum = False
    transaction(stream)
    found = scan(b"\xfebin" + bytes(stream), checksum=True)
    assert (len(found.groups), found.trailer) == (2, 0)
    old = Primary()
    old.event(
        EventType.FORMAT_DESCRIPTION, format_description(True, lengths={EventType.TABLE_MAP: 6})
    )  # 4-byte table ids
    with pytest.raises(ProtocolError, match="malformed"):
        scan(bytes(old), checksum=True)


@pytest.mark.parametrize(
    ("kind", "body", "error", "words"),
    [
        (EventType.WRITE_ROWS_COMPRESSED_V1, rows(8, 1, ONE), ProtocolError, "without its table map"),
        (EventType.DELETE_ROWS_COMPRESSED, bytes(9), ProtocolError, r"malformed event \(DELETE_ROWS_COMPRESSED"),
        (
            EventType.PRE_GA_WRITE_ROWS,
            bytes(30),
            UnsupportedEventError,
            r"PRE_GA_WRITE_ROWS \(20\) .* before MySQL 5.1",
        ),
        (EventType.PRE_GA_DELETE_ROWS, bytes(30), UnsupportedEventError, "PRE_GA_DELETE_ROWS"),
        (EventType.START_V3, bytes(56), UnsupportedEventError, "START_V3"),
        (EventType.LOAD, bytes(30), UnsupportedEventError, "LOAD"),
        (EventType.SLAVE, bytes(30), UnsupportedEventError, "SLAVE"),
        (EventType.CREATE_FILE, bytes(30), UnsupportedEventError, "CREATE_FILE"),
        (EventType.EXEC_LOAD, bytes(30), UnsupportedEventError, "EXEC_LOAD"),
        (EventType.NEW_LOAD, bytes(30), UnsupportedEventError, "NEW_LOAD"),
        (199, bytes(30), UnsupportedEventError, "event type 199 is unknown"),
        (EventType.PARTIAL_ROW_DATA, bytes(30), ProtocolError, "fragment 0 of 0 of a rows event"),
        (EventType.INCIDENT, b"\x01\0\x04lost", ProtocolError, r"lost events here \(INCIDENT\): incident 1, 'lost'"),
        (EventType.INCIDENT, b"\x01\0\x00", ProtocolError, "incident 1, without a message"),
        (EventType.INCIDENT, b"\x01\0\xffcut", ProtocolError, "incident 1, 'cut'"),
        (EventType.INCIDENT, b"", ProtocolError, "incident 0, without a message"),
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
    stream = Primary()
    transaction(stream)
    stream.gtid()
    at = stream.event(kind, body)
    stream.xid()
    with pytest.raises(error, match=words) as caught:
        scan(bytes(stream), checksum=True)
    assert isinstance(caught.value, ProtocolError)
    assert caught.value.offset == at
    assert caught.value.hint or error is ProtocolError


@pytest.mark.parametrize("inside", [False, True])
def test_the_groups_before_a_stop_are_told(*, inside: bool) -> None:
    stream = Primary()
    transaction(stream)
    transaction(stream)
    whole = scan(bytes(stream), checksum=True)
    if inside:
        stream.gtid()
        stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
        stream.event(INSERT, rows(7, 1, ONE))
    at = stream.event(EventType.INCIDENT, b"\x01\0\x04lost")
    transaction(stream)
    found, error = scan_until(bytes(stream), checksum=True)
    assert error is not None
    assert error.offset == at
    assert found.groups.tolist() == whole.groups.tolist()
    assert found.events.tolist() == whole.events.tolist()
    assert scan_until(bytes(stream)[:at], checksum=True)[1] is None or inside


@pytest.mark.parametrize("kind", [INSERT, EventType.TABLE_MAP, EventType.XID, EventType.QUERY, EventType.XA_PREPARE])
def test_members_of_a_group_outside_of_one_are_refused(kind: int) -> None:
    stream = Primary()
    stream.event(kind, bytes(30))
    with pytest.raises(ProtocolError, match="outside of an event group"):
        scan(bytes(stream), checksum=True)


def test_a_group_without_end_is_refused_and_nothing_is_no_group() -> None:
    stream = Primary()
    stream.gtid()
    with pytest.raises(TruncatedError, match="no end"):
        scan(bytes(stream), checksum=True)
    assert len(scan(b"", checksum=True).groups) == 0


def test_only_contiguous_bytes_are_scanned() -> None:
    np = pytest.importorskip("numpy")
    with pytest.raises(ValueError, match="contiguous"):
        scan(np.zeros(64, np.uint8)[::2], checksum=True)


def sample() -> bytes:
    stream = Primary()
    stream.gtid(None, 2 | 64, struct.pack("<Q", 1) + struct.pack("<IBB", 1, 2, 3) + b"abcde" + b"\x10" + bytes(4))
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
    for start, end in zip(column(found, "event.images"), column(found, "event.end"), strict=True):
        assert 0 < start < end <= len(data)


def test_a_gtid_event_padded_for_a_large_commit() -> None:
    """A transaction beyond binlog_large_commit_threshold becomes a file of its own, with room kept in front of it."""
    stream = Primary()
    start = stream.gtid(None, 4, struct.pack("<BI", 16, 7) + bytes(3760))  # flags_extra THREAD_ID, then zeros
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.xid()
    found = scan(bytes(stream), checksum=True)
    assert column(found, "group.start") == [start]
    assert column(found, "group.thread") == [7]
    assert len(found.events) == 1
