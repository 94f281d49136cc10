"""Event groups: the rule over real binlogs, checked against their GTIDs, and its corners by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ProtocolError
from replica.protocol import header
from replica.protocol.constants import ChecksumAlgorithm, EventType, GtidFlag, HeaderFlag
from replica.protocol.events.binlog_file import encode_event, walk
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.header import parse_header
from tests.vectors.load import BINLOGS, HERE, VERSIONS, listing, name_of
from tests.vectors.mysql.load import binlogs, listed_gtids, read

if TYPE_CHECKING:
    from pathlib import Path

QUERY_HEAD = bytes(13) + b"v\0"
GTID = EventType.GTID
TRANSACTION = (5).to_bytes(8, "little") + bytes(4) + bytes((GtidFlag.TRANSACTIONAL,))
STANDALONE = (5).to_bytes(8, "little") + bytes(4) + bytes((GtidFlag.STANDALONE,))


def feed(tracker: GroupTracker, event_type: int, body: bytes = b"", flags: int = 0) -> Place:
    raw = encode_event(event_type, body, server_id=1, checksum=ChecksumAlgorithm.NONE, flags=flags)
    return tracker.feed(parse_header(raw), memoryview(raw))


def places(*events: tuple[int, bytes]) -> list[str]:
    tracker = GroupTracker()
    return [feed(tracker, kind, body).value for kind, body in events]


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_each_gtid_of_a_binlog_opens_a_group_that_ends_before_the_next(path: Path) -> None:
    tracker = GroupTracker()
    ended = []
    for found in walk(path.read_bytes()):
        place = tracker.feed(found.header, header.strip(found.event, found.description.checksum))
        if place is Place.END:
            ended.append(f"GTID {tracker.gtid}")
        assert tracker.is_open == (place in (Place.BEGIN, Place.MEMBER))
    told = [" ".join(event.text.split()[:2]) for event in listing(path) if event.event_type == GTID]
    assert ended == told
    assert tracker.cut_groups == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_events_that_end_groups(version: str) -> None:
    data = (HERE / version / "transactions.binlog").read_bytes()
    tracker = GroupTracker()
    kinds = [
        EventType(found.header.event_type).name
        for found in walk(data)
        if tracker.feed(found.header, header.strip(found.event, found.description.checksum)) is Place.END
    ]
    assert set(kinds) == {"QUERY", "XID", "XA_PREPARE"}
    assert kinds.count("XA_PREPARE") == 2


def test_standalone_ends_with_its_first_query_whatever_it_says() -> None:
    query = QUERY_HEAD + b"DROP TABLE t"
    assert places((GTID, STANDALONE), (EventType.INTVAR, bytes(9)), (EventType.QUERY, query)) == [
        "begin",
        "member",
        "end",
    ]
    assert places((GTID, STANDALONE), (EventType.QUERY_COMPRESSED, query)) == ["begin", "end"]
    assert places((GTID, STANDALONE), (EventType.INCIDENT, b"\1\0\0")) == ["begin", "end"]


@pytest.mark.parametrize("text", [b"COMMIT", b"ROLLBACK"])
def test_a_transaction_ends_with_commit_or_rollback_as_the_whole_text(text: bytes) -> None:
    assert places((GTID, TRANSACTION), (EventType.QUERY, QUERY_HEAD + text)) == ["begin", "end"]


@pytest.mark.parametrize(
    "text", [b"INSERT INTO s VALUES (1) -- COMMIT", b"BEGIN", b"SAVEPOINT s", b"ROLLBACK TO s", b"commit", b"COMMIT "]
)
def test_other_texts_do_not_end_a_transaction(text: bytes) -> None:
    assert places((GTID, TRANSACTION), (EventType.QUERY, QUERY_HEAD + text)) == ["begin", "member"]


def test_a_compressed_commit_or_load_data_does_not_end_a_transaction() -> None:
    for kind in (EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY):
        assert places((GTID, TRANSACTION), (kind, QUERY_HEAD + b"COMMIT")) == ["begin", "member"]


@pytest.mark.parametrize(
    "kind",
    [
        EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.STOP, EventType.HEARTBEAT, EventType.GTID_LIST,
        EventType.BINLOG_CHECKPOINT, EventType.START_ENCRYPTION, EventType.INCIDENT,
    ],
)  # fmt: skip
def test_events_about_the_binlog_are_outside_even_inside(kind: EventType) -> None:
    events = [(GTID, TRANSACTION), (kind, bytes(8)), (EventType.XID, bytes(8)), (kind, bytes(8))]
    assert places(*events) == ["begin", "outside", "end", "outside"]


def test_a_gtid_inside_a_group_voids_it() -> None:
    tracker = GroupTracker()
    feed(tracker, GTID, TRANSACTION)
    assert feed(tracker, GTID, b"\x06" + TRANSACTION[1:]) is Place.BEGIN
    assert tracker.cut_groups == 1
    assert tracker.gtid is not None
    assert tracker.gtid.seq_no == 6


def test_after_a_reset_the_group_is_forgotten() -> None:
    tracker = GroupTracker()
    feed(tracker, GTID, TRANSACTION)
    tracker.reset()
    assert not tracker.is_open
    with pytest.raises(ProtocolError, match="outside of an event group"):
        feed(tracker, EventType.XID, bytes(8))


@pytest.mark.parametrize("kind", [EventType.TABLE_MAP, EventType.WRITE_ROWS_V1, EventType.XID, EventType.QUERY])
def test_members_without_a_group_are_refused(kind: EventType) -> None:
    with pytest.raises(ProtocolError, match="outside of an event group"):
        feed(GroupTracker(), kind, bytes(20))


def test_dummy_events_for_old_replicas_are_outside() -> None:
    tracker = GroupTracker()
    text = b"# Dummy event replacing event type 163 that slave cannot handle."
    for shown in (text, text[:5], text[:1], text + b" " * 200):  # 11.8 sends "# Dum" for a GTID event
        assert feed(tracker, EventType.QUERY, bytes(14) + shown, HeaderFlag.SUPPRESS_USE) is Place.OUTSIDE
    for other in (bytes(14), bytes(14) + b"# Dumb", bytes(14) + b"## Dummy event"):
        with pytest.raises(ProtocolError, match="outside of an event group"):
            feed(tracker, EventType.QUERY, other)
    assert feed(tracker, EventType.USER_VAR, b"\x09\0\0\0!dummyvar\x01", HeaderFlag.SUPPRESS_USE) is Place.OUTSIDE
    assert feed(tracker, 200, b"", HeaderFlag.IGNORABLE) is Place.OUTSIDE


@pytest.mark.parametrize("name", [name for stem in ("groups", "payload", "partial_json") for name in binlogs(stem)])
def test_groups_of_mysql_end_before_the_next_gtid(name: str) -> None:
    tracker = GroupTracker()
    ended = 0
    for found in walk(read(name)):
        place = tracker.feed(found.header, header.strip(found.event, found.description.checksum))
        ended += place is Place.END
        assert tracker.gtid is None
    assert (ended, tracker.cut_groups, tracker.is_open) == (len(listed_gtids(name)), 0, False)


def test_what_the_first_statement_says_of_a_group_of_mysql() -> None:
    gtid = (EventType.GTID_LOG, bytes(25))

    def statement(sql: bytes) -> tuple[int, bytes]:
        return EventType.QUERY, QUERY_HEAD[:8] + b"\1" + QUERY_HEAD[9:] + sql

    begin, end, member = Place.BEGIN.value, Place.END.value, Place.MEMBER.value
    assert places(gtid, statement(b"CREATE TABLE t (id INT)")) == [begin, end]
    assert places(gtid, statement(b"BEGIN"), statement(b"x"), (EventType.XID, bytes(8))) == [begin, member, member, end]
    assert places(gtid, statement(b"BEGIN"), statement(b"COMMIT")) == [begin, member, end]
    assert places(gtid, statement(b"XA START X'61',X'',1"), (EventType.XA_PREPARE, bytes(13))) == [begin, member, end]
    assert places(gtid, statement(b"XA COMMIT X'61',X'',1")) == [begin, end]
    assert places(gtid, (EventType.TRANSACTION_PAYLOAD, b"")) == [begin, end]
    assert places(gtid, gtid, statement(b"BEGIN")) == [begin, begin, member]
