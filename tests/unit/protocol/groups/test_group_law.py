"""One law of event groups: every walker says the same of every event, in every group, under every flag.

256 types, the four groups that may be open, the flags that could matter, and texts that end groups or look like it.
The plain rule (protocol/groups.py) is compared with the kernels that walk files, the live stream and ranges, and with
those that search ranges. Where a walker has a reason of its own to stop, the reason is written down here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.native.kernel_group import NO_GROUP
from replica.protocol.constants import ROLES, ChecksumAlgorithm, EventType, Group, GtidFlag, HeaderFlag, Role
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.gtid import GtidPosition
from replica.protocol.header import parse_header
from replica.readers.files import kernel_groups as files
from replica.relay_log.files.scan import StreamState
from replica.relay_log.kernels import stream_record
from replica.relay_log.kernels.stream_record import Cell
from replica.rows.scan import records as s
from replica.rows.scan.kernels.kernel_scan import scan_range
from replica.rows.scan.kernels.kernel_search import StatementRecord, XaRecord, find_statements, find_xa
from replica.rows.scan.records import ActiveRecord, EventRecord, GroupRecord, MapRecord, SavepointRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 200  # a number that no server has given away
# A QUERY without a database whose 12 bytes of status make it long enough for the fixed fields of every GTID event.
HEAD = bytes(11) + b"\x0c\0" + bytes(12) + b"\0"
BODIES = {
    "commit": HEAD + b"COMMIT",
    "rollback": HEAD + b"ROLLBACK",
    "begin": HEAD + b"BEGIN",
    "xa start": HEAD + b"XA START X'61',X'',1",
    "other": HEAD + b"INSERT INTO t VALUES (1) -- COMMIT",
    "dummy": HEAD + b"# Dummy event replacing",
    "dummy variable": b"\x09\0\0\0!dummyvar" + bytes(50),
    "short": b"\0COMMIT",
}
FLAGS = {"": 0, "ignorable": HeaderFlag.IGNORABLE, "artificial": HeaderFlag.ARTIFICIAL}


def event(kind: int, body: bytes, flags: int = 0) -> bytes:
    return encode_event(kind, body, server_id=1, checksum=ChecksumAlgorithm.NONE, flags=flags)


GTID = bytes(12)
OPENED = {
    Group.NONE: b"",
    Group.TRANSACTION: event(EventType.GTID, GTID + bytes((GtidFlag.TRANSACTIONAL,))),
    Group.STANDALONE: event(EventType.GTID, GTID + bytes((GtidFlag.STANDALONE,))),
    Group.UNDECIDED: event(EventType.GTID_LOG, bytes(25)),
}
TEXT = event(EventType.QUERY, HEAD + b"UPDATE t")
PREPARE = event(EventType.XA_PREPARE, bytes(13))


@dataclass(frozen=True)
class Case:
    """One event behind the one that opened the group, if any."""

    kind: int
    group: Group
    flags: int
    body: bytes
    data: bytes = field(repr=False)
    at: int

    @property
    def event(self) -> bytes:
        return self.data[self.at :]

    def seen_as(self, kind: int) -> Case:
        data = bytearray(self.data)
        data[self.at + 4] = kind
        return Case(kind, self.group, self.flags, self.body, bytes(data), self.at)


@dataclass(frozen=True)
class Said:
    """What a walker says: the group behind the event, or that it refuses the event."""

    group: Group
    refused: bool = False
    ended: bool = False
    """The event ended a group."""
    kept: bool = False
    """The event is part of a group."""


def cases(body: str) -> Iterator[Case]:
    for group, prefix in OPENED.items():
        for flags in FLAGS.values():
            raw = bytearray(prefix + event(0, BODIES[body], flags))
            for kind in range(256):
                raw[len(prefix) + 4] = kind
                yield Case(kind, group, flags, BODIES[body], bytes(raw), len(prefix))


def plain(case: Case) -> Said:
    tracker = GroupTracker()
    prefix, raw = case.data[: case.at], memoryview(case.event)
    if prefix:
        tracker.feed(parse_header(prefix), memoryview(prefix))
    assert tracker.group is case.group
    try:
        place = tracker.feed(parse_header(raw), raw)
    except ProtocolError:
        return Said(case.group, refused=True)
    return Said(tracker.group, ended=place is Place.END, kept=place is not Place.OUTSIDE)


def is_short(case: Case) -> bool:
    """Whether the body cannot hold what every reader of the type needs: the plain rule only looks at texts."""
    least = {Role.BEGIN: 13, Role.MYSQL_BEGIN: 25, Role.STATEMENT: 13, Role.END: 8}
    return len(case.body) < least.get(ROLES[case.kind], 0)


@pytest.mark.parametrize("body", BODIES)
def test_the_walk_over_files_follows_the_law(body: str) -> None:
    for case in cases(body):
        if ROLES[case.kind] is Role.BEGIN and is_short(case):
            continue
        state = np.zeros((), files.WalkState.dtype)
        state["target"] = 1 << 62
        data = np.frombuffer(case.data, np.uint8)
        reason = files.walk(address(data), len(data), address(state))
        group, apart = Group(int(state["group"])), reason == files.REACHED or bool(state["apart"])
        expected = plain(case)
        role = ROLES[case.kind]
        if case.kind == EventType.FORMAT_DESCRIPTION:  # Python reads it, and the group stays as it is
            assert (reason, group) == (files.DESCRIPTION, expected.group), case
        elif case.kind == EventType.START_ENCRYPTION and not case.flags & HeaderFlag.IGNORABLE:
            assert reason == files.ENCRYPTION, case  # what follows cannot be read
        elif role in (Role.STRANGER, Role.REFUSED):
            # Not refused here: it gets a range of its own, and who decodes that refuses.
            assert (reason in (files.REACHED, files.NEED_BYTES), group) == (True, case.group), case
            assert apart == (role is Role.REFUSED or not case.flags & HeaderFlag.IGNORABLE), case
        elif expected.refused:
            assert reason == files.OUTSIDE, case
        else:
            assert (reason in (files.REACHED, files.NEED_BYTES), group) == (True, expected.group), case
            assert apart == (role is Role.LOST), case
            assert (expected.ended or group is case.group) or role in (Role.BEGIN, Role.MYSQL_BEGIN, Role.STATEMENT)


STREAM = StreamState(GtidPosition(()), framed=False)


@pytest.mark.parametrize("body", BODIES)
def test_the_live_stream_follows_the_law(body: str) -> None:
    for case in cases(body):
        if case.group is Group.UNDECIDED or (ROLES[case.kind] is Role.BEGIN and is_short(case)):
            continue  # a MariaDB primary opens no groups of MySQL
        STREAM[Cell.group], STREAM[Cell.checksum] = NO_GROUP, 0
        data = np.frombuffer(case.data, np.uint8).copy()
        reason = STREAM.run(address(data), address(data) + len(data))
        kept = STREAM[Cell.out] - address(data) > case.at
        group = Group(STREAM[Cell.group])
        role, row = ROLES[case.kind], next((row for row in EventType if row == case.kind), None)
        expected = plain(case)
        if row is not None and row.writers.mysql and not row.writers.mariadb:
            # What only MySQL writes is a stranger in MariaDB's stream; its groups are refused whatever their flags.
            is_group = role in (Role.MYSQL_BEGIN, Role.PAYLOAD)
            role = Role.STRANGER
            expected = Said(case.group, refused=True) if is_group else plain(case.seen_as(STRANGER))
        if case.group is not Group.NONE and (role is Role.BEGIN or case.kind == EventType.FORMAT_DESCRIPTION):
            # The open group is void. The event comes again behind it; a group never spans files.
            assert (reason, group, kept) == (stream_record.DISCARD, case.group, False), case
        elif role is Role.LOST:
            assert (reason, group, kept) == (stream_record.INCIDENT, case.group, False), case
        elif expected.refused:
            assert (reason in (stream_record.UNKNOWN_EVENT, stream_record.ORPHAN), group, kept) == (
                True,
                case.group,
                False,
            ), case
        elif case.kind == EventType.FORMAT_DESCRIPTION:
            assert reason in (stream_record.CONTROL, stream_record.BAD_CHECKSUM), (
                case
            )  # its own checksum is always compared
        else:
            assert reason == (stream_record.CONTROL if role is Role.CONTROL else stream_record.NEED_BYTES), case
            assert (group, kept) == (expected.group, expected.kept), case


class Scanner:
    """The scan kernel with room for what one case holds."""

    def __init__(self) -> None:
        self.groups = np.zeros(4, GroupRecord.dtype)
        self.events = np.zeros(4, EventRecord.dtype)
        self.maps = np.zeros(4, MapRecord.dtype)
        self.savepoints = np.zeros(4, SavepointRecord.dtype)
        self.active = np.zeros(s.MAX_ACTIVE, ActiveRecord.dtype)

    def run(self, case: Case) -> tuple[int, Group, int]:
        """The code it stopped with, the open group and how many groups ended."""
        state = np.zeros(1, s.ScanState.dtype)
        table, hints = np.zeros(16, np.int64), np.zeros(s.HINTS, np.int64)
        data = np.frombuffer(case.data, np.uint8)
        status = scan_range(
            *(address(data), len(data), address(state)),
            *(address(self.groups), 4, address(self.events), 4, address(self.maps), 4),
            *(address(table), 15, address(self.active), address(hints), address(self.savepoints), 4),
        )
        return status, Group(int(state["open"][0])), int(state["groups"][0])


SCANNER = Scanner()
# Types whose bodies the scan reads beyond their fixed fields, so that these bodies may be malformed ones.
READ = {EventType.FORMAT_DESCRIPTION, EventType.TABLE_MAP, EventType.GTID, EventType.GTID_TAGGED_LOG} | {
    row for row in EventType if row.has_rows
}


@pytest.mark.parametrize("body", BODIES)
def test_the_scan_of_ranges_follows_the_law(body: str) -> None:
    for case in cases(body):
        status, group, ended = SCANNER.run(case)
        role, expected = ROLES[case.kind], plain(case)
        if status in (s.BAD_EVENT, s.NO_TABLE_MAP):
            assert case.kind in READ or is_short(case), case
        elif expected.refused:
            refusals = (s.OUTSIDE_GROUP, s.UNKNOWN_EVENT, s.HISTORICAL)
            assert (status in refusals, group, ended) == (True, case.group, 0), case
        elif role is Role.LOST:
            assert status == s.INCIDENT, case  # rows are missing
        elif case.kind == EventType.START_ENCRYPTION and not case.flags & HeaderFlag.IGNORABLE:
            assert status == s.ENCRYPTED, case  # what follows cannot be read
        elif expected.kept and (role is Role.PAYLOAD or case.kind == EventType.PARTIAL_ROW_DATA):
            assert status == s.NEEDS_EXPANSION, case  # the events inside are scanned instead
        else:
            assert status == (s.DONE if expected.group is Group.NONE else s.OPEN_GROUP), case
            assert (group, ended) == (expected.group, int(expected.ended)), case


def found(records: np.ndarray, count: int, name: str) -> list[int]:
    assert 0 <= count <= len(records)
    return records[name][:count].tolist()


@pytest.mark.parametrize("body", BODIES)
def test_the_searches_in_ranges_follow_the_law(body: str) -> None:
    """They search what another walker has passed, so they refuse nothing: a refused event leaves the group as it is."""
    texts, prepared = np.zeros(4, StatementRecord.dtype), np.zeros(4, XaRecord.dtype)
    for case in cases(body):
        if is_short(case):
            continue
        after = plain(case).group
        data = np.frombuffer(case.data + TEXT, np.uint8)
        state = np.zeros((), s.SearchState.dtype)
        count = find_statements(address(data), len(data), address(state), address(texts), 4, 1)
        assert (len(case.data) in found(texts, count, "start")) == (after is not Group.NONE), case
        data = np.frombuffer(case.data + PREPARE, np.uint8)
        state = np.zeros((), s.SearchState.dtype)
        count = find_xa(address(data), len(data), address(state), address(prepared), 4)
        is_transaction = after in (Group.TRANSACTION, Group.UNDECIDED)
        assert (len(case.data) in found(prepared, count, "last")) == is_transaction, case
