"""Rows that are rolled back to a savepoint: the scan of a range and of a group in blocks against a list of rows."""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.constants import EventType, GtidExtraFlag, GtidFlag
from replica.rows.scan import windows
from replica.rows.scan.scan import Scan, event_blocks, scan, scan_until
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, reference_rows

INT = Column("id", 3)
NAMES = ("a", "A", "b", "`", "é", "e", "É")
ENDINGS = ("xid", "commit", "rollback", "prepare")
OPERATIONS = st.lists(
    st.one_of(
        st.just(("row", 0)),
        st.tuples(st.just("set"), st.sampled_from(NAMES)),
        st.tuples(st.just("back"), st.integers(0, 3)),
        st.just(("text", 0)),
    ),
    max_size=25,
)


def key(name: str, *, accents: bool) -> str:
    return name.upper() if accents else name.upper().replace("É", "E")


class Writer:
    """Writes groups, and remembers per group the rows that are left of it."""

    def __init__(self, *, checksum: bool, accents: bool) -> None:
        self.stream = Primary(checksum=checksum)
        self.accents = accents
        self.left: list[list[int]] = []
        self._number = 0

    def insert(self) -> int:
        self._number += 1
        self.stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
        self.stream.event(INSERT, rows(7, 1, image([struct.pack("<i", self._number)])))
        return self._number

    def group(self, operations: list[tuple[str, Any]], ending: str) -> None:
        extra = bytes([GtidExtraFlag.THREAD_ID]) + struct.pack("<I", 5) if self.accents else b""
        if ending == "prepare":
            self.stream.begin(xa="x")
        else:
            self.stream.gtid(None, GtidFlag.TRANSACTIONAL, extra)
        accents = self.accents and ending != "prepare"
        left: list[int] = []
        savepoints: list[tuple[str, int]] = []
        for what, value in operations:
            match what:
                case "row":
                    left.append(self.insert())
                case "set":
                    same = key(value, accents=accents)
                    savepoints = [one for one in savepoints if key(one[0], accents=accents) != same]
                    savepoints.append((value, len(left)))
                    self.stream.query(b"SAVEPOINT `%s`" % value.replace("`", "``").encode())
                case "back" if value < len(savepoints):
                    savepoints = savepoints[: value + 1]
                    name, count = savepoints[-1]
                    del left[count:]
                    self.stream.query(b"ROLLBACK TO `%s`" % name.replace("`", "``").swapcase().encode())
                case "text":
                    self.stream.query(b"UPDATE d.t SET id = 1")
        match ending:
            case "xid":
                self.stream.xid()
            case "prepare":
                self.stream.xa_prepared("x")
            case _:
                self.stream.query(ending.upper().encode())
        self.left.append([] if ending == "rollback" else left)


def numbers(found: Scan, group: int | None = None) -> list[int]:
    """The rows of a scan, or of one of its groups."""
    events = found.events
    if group is not None:
        events = events[int(found.groups["first"][group]) : int(found.groups["last"][group])]
        assert set(events["group"].tolist()) <= {group}
    return [int.from_bytes(found.data[int(end) - 4 : int(end)].tobytes(), "little") for end in events["end"]]


@given(
    groups=st.lists(st.tuples(OPERATIONS, st.sampled_from(ENDINGS)), min_size=1, max_size=4),
    checksum=st.booleans(),
    accents=st.booleans(),
)
def test_the_scan_of_a_range(groups: list[tuple[Any, str]], *, checksum: bool, accents: bool) -> None:
    writer = Writer(checksum=checksum, accents=accents)
    for operations, ending in groups:
        writer.group(operations, ending)
    found = scan(bytes(writer.stream), checksum=checksum)
    assert [numbers(found, number) for number in range(len(found.groups))] == writer.left
    assert numbers(found) == list(chain.from_iterable(writer.left))


@given(operations=OPERATIONS, accents=st.booleans())
def test_the_plain_twin_has_the_same_rows_with_ordinals_of_what_is_left(
    operations: list[tuple[str, Any]], *, accents: bool
) -> None:
    writer = Writer(checksum=True, accents=accents)
    writer.group(operations, "xid")
    plain = [(row.change.after, row.ordinal) for row in reference_rows(writer.stream.binlog(), Tables({"d.t": None}))]
    assert plain == [({"id": number}, ordinal) for ordinal, number in enumerate(writer.left[0])]


@given(
    operations=OPERATIONS,
    ending=st.sampled_from(["xid", "commit", "prepare"]),
    checksum=st.booleans(),
    accents=st.booleans(),
    block=st.sampled_from([1, 2, 5, 1 << 16]),
    window=st.sampled_from([1, 40, 200, 16 << 20]),
)
def test_blocks_of_a_group_never_have_a_row_that_is_undone_later(
    operations: list[tuple[str, Any]], ending: str, *, checksum: bool, accents: bool, block: int, window: int
) -> None:
    writer = Writer(checksum=checksum, accents=accents)
    writer.group(operations, ending)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW_BYTES", window)
        blocks = list(event_blocks(bytes(writer.stream), checksum=checksum, block_events=block))
    assert list(chain.from_iterable(numbers(one.found) for one in blocks)) == writer.left[0]
    assert blocks[-1].group_ended


def test_more_savepoints_than_there_is_room_for_first() -> None:
    writer = Writer(checksum=True, accents=True)
    for _ in range(2):
        back = [("back", 150), ("row", 0), ("back", 150), ("back", 20), ("row", 0)]
        writer.group([("row", 0), *[one for n in range(200) for one in (("set", f"s{n}"), ("row", 0))], *back], "xid")
    data = bytes(writer.stream)
    assert numbers(scan(data, checksum=True)) == list(chain.from_iterable(writer.left))
    half = data[: len(data) // 2]
    blocks = event_blocks(half, checksum=True, block_events=7)
    assert list(chain.from_iterable(numbers(one.found) for one in blocks)) == writer.left[0]
    assert len(writer.left[0]) == 22


def test_table_maps_of_what_is_undone_hold_for_the_rest_of_the_statement() -> None:
    """A trigger's ROLLBACK TO is inside a statement: its tables were mapped after the savepoint (measured)."""
    stream = Primary()
    stream.gtid()
    stream.query(b"SAVEPOINT `a`")
    stream.event(EventType.TABLE_MAP, table_map(7, [INT]))
    stream.event(INSERT, rows(7, 1, image([struct.pack("<i", 1)]), flags=0))
    stream.query(b"ROLLBACK TO `a`")
    stream.event(INSERT, rows(7, 1, image([struct.pack("<i", 2)])))
    stream.xid()
    assert numbers(scan(bytes(stream), checksum=True)) == [2]
    blocks = list(event_blocks(bytes(stream), checksum=True, block_events=1))
    assert list(chain.from_iterable(numbers(one.found) for one in blocks)) == [2]


@pytest.mark.parametrize("before", [b"SAVEPOINT `b`", b"SELECT 1"])
def test_a_savepoint_that_is_not_there_is_an_error_after_the_groups_before(before: bytes) -> None:
    writer = Writer(checksum=True, accents=True)
    writer.group([("row", 0)], "xid")
    start = len(bytes(writer.stream))
    writer.stream.gtid()
    writer.stream.query(before)
    writer.insert()
    at = writer.stream.query(b"ROLLBACK TO `a`")
    writer.stream.xid()
    found, error = scan_until(bytes(writer.stream), checksum=True)
    assert numbers(found) == writer.left[0]
    assert error is not None
    assert error.offset == at
    with pytest.raises(ProtocolError, match="the savepoint 'a', which it does not have"):
        list(event_blocks(bytes(writer.stream)[start:], checksum=True))


@pytest.mark.parametrize("packed", [False, True])
def test_groups_of_mysql_compare_names_without_accents(*, packed: bool) -> None:
    members = Primary(checksum=not packed)
    members.query(b"BEGIN")
    for number, text in ((1, "SAVEPOINT `é`"), (2, "ROLLBACK TO `E`"), (3, "SAVEPOINT `p`")):
        members.event(EventType.TABLE_MAP, table_map(7, [INT]))
        members.event(INSERT, rows(7, 1, image([struct.pack("<i", number)])))
        members.query(text.encode())
    members.xid()
    stream = Primary()
    stream.event(EventType.GTID_LOG, bodies.mysql_gtid(5, bytes(16)))
    if packed:
        stream.event(EventType.TRANSACTION_PAYLOAD, bodies.payload(bytes(members)))
    else:
        stream.events += members.events
    assert numbers(scan(bytes(stream), checksum=True)) == [1, 3]
