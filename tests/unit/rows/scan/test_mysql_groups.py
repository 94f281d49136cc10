"""MySQL's groups in the scan kernel: the numbers that the plain decoder reads, and what ends a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError, TruncatedError
from replica.protocol.constants import EventType
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import MySqlGtidEvent
from replica.rows.scan import records as r
from replica.rows.scan.scan import scan
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map
from tests.unit.protocol.mysql.wire_varlen import signed, unsigned
from tests.vectors.mysql.load import binlogs, read

if TYPE_CHECKING:
    from collections.abc import Sequence

ID = [Column("id", 3)]
ONE = image([b"\1\0\0\0"])
UUID = bytes(range(120, 136))  # bytes on both sides of 128: of one and of two bytes in a tagged event
DDL, BEGIN, XA_START = b"CREATE TABLE t (id INT)", b"BEGIN", b"XA START X'61',X'',1"


def gtid_log(number: int) -> bytes:
    return bodies.mysql_gtid(number, UUID)


def tagged(number: int, *, flags: bool = True, tag: bytes = b"tag") -> bytes:
    fields = (unsigned(0) + unsigned(1) if flags else b"") + unsigned(1) + b"".join(map(unsigned, UUID))
    fields += unsigned(2) + signed(number) + unsigned(3) + unsigned(len(tag)) + tag
    return unsigned(1) + unsigned(3 + len(fields)) + unsigned(0) + fields


def groups(*events: tuple[int, bytes], checksum: bool = True) -> list[tuple[int, int]]:
    """(number, ending) of the groups of these events; a body of type QUERY is its text."""
    stream = Primary(checksum=checksum)
    for kind, body in events:
        if kind == EventType.QUERY:
            stream.query(body)
        else:
            stream.event(kind, body)
    found = scan(bytes(stream), checksum=checksum)
    assert found.is_mysql
    assert set(found.groups["domain"].tolist()) == {0}
    assert set(found.groups["server"].tolist()) == {9}
    numbers, endings = found.groups["sequence"], found.groups["ending"]
    return list(zip(numbers.tolist(), endings.tolist(), strict=True))


@pytest.mark.parametrize("name", [name for stem in ("groups", "partial_json", "payload") for name in binlogs(stem)])
def test_numbers_and_starts_are_those_of_the_plain_decoder(name: str) -> None:
    data = read(name)
    events = [(found, event) for found, event in decode_file(data) if isinstance(event, MySqlGtidEvent)]
    found = scan(data, checksum=True)
    assert found.groups["sequence"].tolist() == [e.gtid.gno if e.gtid else 0 for _, e in events]
    starts = found.groups["start"].tolist()
    assert [found.origin(start) for start in starts] == [one.offset for one, _ in events]


@given(st.integers(1, (1 << 63) - 1), st.booleans(), st.binary(max_size=32))
def test_any_tagged_number(number: int, flags: bool, tag: bytes) -> None:  # noqa: FBT001
    event = (EventType.GTID_TAGGED_LOG, tagged(number, flags=flags, tag=tag))
    assert groups(event, (EventType.QUERY, DDL)) == [(number, r.ENDS_STANDALONE)]


@pytest.mark.parametrize(
    ("members", "ending"),
    [
        ([(EventType.QUERY, DDL)], r.ENDS_STANDALONE),
        ([(EventType.QUERY, BEGIN), (EventType.XID, bytes(8))], r.ENDS_XID),
        ([(EventType.QUERY, BEGIN), (EventType.QUERY, b"SAVEPOINT `p`"), (EventType.QUERY, b"COMMIT")], r.ENDS_COMMIT),
        ([(EventType.QUERY, BEGIN), (EventType.QUERY, b"ROLLBACK")], r.ENDS_ROLLBACK),
        ([(EventType.QUERY, XA_START), (EventType.XA_PREPARE, bytes(13))], r.ENDS_XA_PREPARE),
        ([(EventType.QUERY, b"XA COMMIT X'61',X'',1")], r.ENDS_STANDALONE),
        ([(EventType.QUERY, b"DO -- BEGIN")], r.ENDS_STANDALONE),
        ([(EventType.QUERY, b"BEGIN"), (EventType.QUERY, b"# COMMIT"), (EventType.XID, bytes(8))], r.ENDS_XID),
    ],
)
def test_what_ends_a_group(members: Sequence[tuple[int, bytes]], ending: int) -> None:
    for first in ((EventType.GTID_LOG, gtid_log(5)), (EventType.GTID_TAGGED_LOG, tagged(5))):
        assert groups(first, *members) == [(5, ending)]
        assert groups(first, *members, first, *members, checksum=False) == [(5, ending)] * 2


def test_xa_commit_and_rollback_are_marked_like_those_of_mariadb() -> None:
    for text, flags in ((b"XA COMMIT X'61',X'',1", 128), (b"XA ROLLBACK X'61',X'',1", 128), (DDL, 0)):
        stream = Primary()
        stream.event(EventType.GTID_LOG, gtid_log(1))
        stream.query(text)
        found = scan(bytes(stream), checksum=True)
        assert found.groups["flags"].tolist() == [flags]


def test_a_group_that_a_crash_cut_short_never_happened() -> None:
    stream = Primary()
    stream.event(EventType.GTID_LOG, gtid_log(1))
    stream.query(BEGIN)
    stream.event(EventType.TABLE_MAP, table_map(7, ID))
    stream.event(INSERT, rows(7, 1, ONE))
    stream.event(EventType.ANONYMOUS_GTID, gtid_log(0))
    stream.query(BEGIN)
    stream.xid()
    found = scan(bytes(stream), checksum=True)
    assert (len(found.groups), len(found.events), found.cut_groups) == (1, 0, 1)


def test_an_open_group_at_the_end() -> None:
    with pytest.raises(TruncatedError, match="last event group has no end"):
        groups((EventType.GTID_LOG, gtid_log(1)))


def test_dummies_that_stand_for_events_of_newer_servers() -> None:
    """As 11.8 sends them to a replica of old: as long as the event they stand for."""
    stream = Primary()
    for text in (b"# Dum", b"# Dummy event replacing event type 163 that slave cannot handle.   "):
        stream.event(EventType.QUERY, bytes(14) + text, flags=8)
    stream.event(EventType.USER_VAR, b"\x09\0\0\0!dummyvar\x01", flags=8)
    assert len(scan(bytes(stream), checksum=True).groups) == 0
    stream.event(EventType.QUERY, bytes(14) + b"# Dumb")
    with pytest.raises(ProtocolError, match="outside of an event group"):
        scan(bytes(stream), checksum=True)


def test_gtids_that_end_too_early() -> None:
    for kind, body in ((EventType.GTID_LOG, gtid_log(1)), (EventType.GTID_TAGGED_LOG, tagged(300)[:-4])):
        whole = len(body) - (1 if kind == EventType.GTID_TAGGED_LOG else 0)
        for end in range(whole):
            with pytest.raises(ProtocolError, match="malformed event"):
                groups((kind, body[:end]), (EventType.QUERY, DDL), checksum=False)


@given(st.sampled_from([33, 34, 42]), st.binary(max_size=80))
def test_garbage_raises_our_errors_only(kind: int, body: bytes) -> None:
    try:
        groups((kind, body), (EventType.QUERY, DDL))
    except ReplicaError:
        return
