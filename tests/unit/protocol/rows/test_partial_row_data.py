"""PARTIAL_ROW_DATA: fragments joined, and fragments that do not belong together."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.events.decode import PartialRowDataEvent
from replica.protocol.header import append
from replica.protocol.rows.rows_event import Assembler
from tests.unit.protocol.events.decoding import decode_body

ROWS = encode_event(EventType.UPDATE_ROWS_V1, bytes(range(200)), server_id=9, checksum=ChecksumAlgorithm.NONE)


def fragment(number: int, total: int, chunk: bytes, size: int | None = None) -> PartialRowDataEvent:
    flags = 0 if size is None else 1
    body = total.to_bytes(4, "little") + number.to_bytes(4, "little") + bytes([flags])
    body += b"" if size is None else size.to_bytes(8, "little")
    return decode_body(PartialRowDataEvent, EventType.PARTIAL_ROW_DATA, body + chunk)


def fragments(event: bytes, chunk: int) -> list[PartialRowDataEvent]:
    chunks = [event[at : at + chunk] for at in range(0, len(event), chunk)]
    return [
        fragment(number, len(chunks), data, len(event) if number == 1 else None)
        for number, data in enumerate(chunks, 1)
    ]


def test_the_fields() -> None:
    first = fragment(1, 3, b"chunk", 15)
    assert (first.number, first.total, first.size, bytes(first.chunk)) == (1, 3, 15, b"chunk")
    assert fragment(3, 3, b"").size is None


@pytest.mark.parametrize("chunk", [1, 18, 19, 20, 100, 219, 500])
def test_joined(chunk: int) -> None:
    assembler = Assembler()
    for _ in range(2):  # one rows event after the other
        *some, last = fragments(ROWS, chunk)
        assert [assembler.add(one) for one in some] == [None] * len(some)
        assert assembler.is_open == bool(some)
        assert assembler.add(last) == ROWS
        assert not assembler.is_open


def test_a_checksum_of_the_rows_event_is_taken_off() -> None:
    length = len(ROWS) + 4
    relengthened = ROWS[:9] + length.to_bytes(4, "little") + ROWS[13:]
    counted = append(relengthened)
    for event in (counted, relengthened):  # in the chunks, or counted by the length alone
        *some, last = fragments(event, 50)
        assembler = Assembler()
        for one in some:
            assembler.add(one)
        assert assembler.add(last) == ROWS


def joined(*some: PartialRowDataEvent, limit: int = 1 << 20) -> None:
    assembler = Assembler(limit)
    for one in some:
        assembler.add(one)


@pytest.mark.parametrize(
    ("some", "message"),
    [
        ([fragment(2, 3, b"x")], "fragment 2 of 3 of a rows event, expected 1"),
        ([fragment(1, 3, b"x")], "does not contain its size"),
        ([fragment(1, 3, b"x" * 20, 60), fragment(3, 3, b"x")], "fragment 3 of 3 of a rows event, expected 2"),
        ([fragment(1, 3, b"x" * 20, 60), fragment(2, 4, b"x")], "fragment 2 of 4 of a rows event, expected 2 of 3"),
        ([fragment(1, 3, b"x" * 20, 60), fragment(1, 3, b"x", 60)], "fragment 1 of 3 of a rows event, expected 2"),
        ([fragment(1, 2, b"x" * 20, 30), fragment(2, 2, b"x" * 20)], "more than the 30 bytes"),
        ([fragment(1, 2, b"x" * 20, 60), fragment(2, 2, b"x" * 20)], "have 40 bytes, 60 are claimed"),
        ([fragment(1, 1, b"x", 18)], "18 bytes in fragments"),
        ([fragment(1, 1, b"x", (1 << 20) + 1)], "1048577 bytes in fragments"),
        ([fragment(1, 1, bytes(9) + b"\x1e" + bytes(20), 30)], "do not form a rows event"),
    ],
)
def test_fragments_that_do_not_make_an_event(some: list[PartialRowDataEvent], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        joined(*some)


@pytest.mark.parametrize(("number", "total"), [(0, 1), (2, 1), (0, 0)])
def test_impossible_numbers(number: int, total: int) -> None:
    with pytest.raises(ProtocolError, match=f"fragment {number} of {total}"):
        fragment(number, total, b"")
