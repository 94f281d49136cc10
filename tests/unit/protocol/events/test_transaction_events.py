"""GTID with every optional field, GTID_LIST, XID, XA_PREPARE; bodies of real servers unless said otherwise."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import EventType, GtidExtraFlag, GtidFlag, HeaderFlag
from replica.protocol.events.decode import GtidEvent, GtidListEvent, XaId, XaPrepareEvent, XidEvent
from replica.protocol.gtid import Gtid
from tests.unit.protocol.events.decoding import decode_body


def gtid(body: str, server_id: int = 1) -> GtidEvent:
    return decode_body(GtidEvent, EventType.GTID, body, server_id=server_id)


def test_plain_transaction() -> None:
    # 10.11, INSERT into InnoDB: six bytes of padding
    event = gtid("0400000000000000 00000000 0c 000000000000")
    assert event.gtid == Gtid(0, 1, 4)
    assert event.flags2 == GtidFlag.TRANSACTIONAL | GtidFlag.ALLOW_PARALLEL
    assert not event.is_standalone
    assert (event.commit_id, event.xa, event.flags_extra, event.thread_id) == (None, None, 0, None)


def test_domain_and_server_id() -> None:
    # 10.11, SET gtid_domain_id=7, server_id=99, gtid_seq_no=1000
    assert str(gtid("e803000000000000 07000000 0c 000000000000", server_id=99).gtid) == "7-99-1000"


def test_thread_id_since_11_5() -> None:
    # 11.8, CREATE DATABASE
    event = gtid("0100000000000000 00000000 29 10 06000000 00")
    assert event.is_standalone
    assert event.flags_extra == GtidExtraFlag.THREAD_ID
    assert event.thread_id == 6


def test_xa_prepare_group() -> None:
    # 10.11, XA PREPARE 'x1','branch',7: the count of engines is -1, "not known"
    event = gtid("0b00000000000000 00000000 4c 07000000 02 06 7831 6272616e6368 01 ff")
    assert event.xa == XaId(7, b"x1", b"branch")
    assert event.flags2 & GtidFlag.PREPARED_XA
    assert (event.flags_extra, event.extra_engines) == (GtidExtraFlag.MULTI_ENGINE, 255)


def test_xa_commit_group() -> None:
    # 11.8, XA COMMIT of the same
    event = gtid("0e00000000000000 00000000 8d 07000000 02 06 7831 6272616e6368 10 06000000")
    assert event.xa == XaId(7, b"x1", b"branch")
    assert event.flags2 & GtidFlag.COMPLETED_XA
    assert event.thread_id == 6


def test_start_alter_and_commit_alter() -> None:
    # 10.11, binlog_alter_two_phase=1
    start = gtid("1900000000000000 00000000 29 02 0000000000")
    assert (start.flags_extra, start.start_alter_seq_no) == (GtidExtraFlag.START_ALTER, None)
    commit = gtid("1a00000000000000 00000000 29 04 1900000000000000")
    assert (commit.flags_extra, commit.start_alter_seq_no) == (GtidExtraFlag.COMMIT_ALTER, 25)
    # 11.8: thread id behind it
    commit = gtid("1a00000000000000 00000000 29 14 1900000000000000 06000000")
    assert (commit.start_alter_seq_no, commit.thread_id) == (25, 6)


def test_all_optional_fields_together() -> None:
    # By hand: no server sets all of them, and the fields do not depend on each other.
    event = gtid("0500000000000000 01000000 8e 0900000000000000 01000000 01 00 61 1d 02 0300000000000000 04000000")
    assert (event.commit_id, event.xa) == (9, XaId(1, b"a", b""))
    assert (event.extra_engines, event.start_alter_seq_no, event.thread_id) == (2, 3, 4)


def test_padding_of_a_large_transaction() -> None:
    event = gtid("0500000000000000 01000000 0c 10 07000000" + "00" * 3760)
    assert event.thread_id == 7


def test_shortest_bodies() -> None:
    assert gtid("0500000000000000 01000000 0c").flags_extra == 0
    assert gtid("0500000000000000 01000000 0e 0900000000000000").commit_id == 9
    with pytest.raises(TruncatedError):
        gtid("0500000000000000 01000000")


def test_xa_ids_longer_than_the_standard_allows() -> None:
    with pytest.raises(ProtocolError, match="at most 64 are allowed"):
        gtid("0500000000000000 01000000 4c 01000000 41 00" + "00" * 65)


def test_gtid_list_with_several_servers_of_a_domain() -> None:
    body = "03000000" + "07000000 01000000 0500000000000000" + "00000000 02000000 0900000000000000"
    event = decode_body(GtidListEvent, EventType.GTID_LIST, body + "00000000 01000000 0c00000000000000")
    assert [str(one) for one in event.gtids] == ["7-1-5", "0-2-9", "0-1-12"]
    assert str(event.position) == "0-1-12,7-1-5"
    assert not event.until_reached


def test_empty_gtid_list_is_padded() -> None:
    # 10.5, first file
    event = decode_body(GtidListEvent, EventType.GTID_LIST, "00000000 0000")
    assert event.gtids == ()
    assert str(event.position) == ""


def test_gtid_list_flags_are_the_high_bits_of_the_count() -> None:
    body = "01000010" + "00000000 01000000 0c00000000000000"
    event = decode_body(GtidListEvent, EventType.GTID_LIST, body, flags=HeaderFlag.ARTIFICIAL)
    assert event.until_reached
    assert len(event.gtids) == 1


def test_gtid_list_that_claims_more_than_it_has() -> None:
    with pytest.raises(TruncatedError):
        decode_body(GtidListEvent, EventType.GTID_LIST, "ffffff0f" + "00" * 32)


def test_xid() -> None:
    assert decode_body(XidEvent, EventType.XID, "0800000000000000").xid == 8


def test_xa_prepare() -> None:
    # 10.11, XA PREPARE 'x1','branch',7: both lengths have four bytes
    event = decode_body(XaPrepareEvent, EventType.XA_PREPARE, "00 07000000 02000000 06000000 7831 6272616e6368")
    assert (event.one_phase, event.xa) == (False, XaId(7, b"x1", b"branch"))
    with pytest.raises(ProtocolError, match="at most 64 are allowed"):
        decode_body(XaPrepareEvent, EventType.XA_PREPARE, "00 07000000 ffffffff 06000000 7831")
