"""Damaged files: every truncation and every changed byte of a small file: what is delivered before, and after."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ChecksumError, ProtocolError, TruncatedError
from replica.protocol.events.binlog_file import walk
from replica.readers.files import ranges
from tests.kit.some import some
from tests.unit.readers.files.reading import TRANSACTIONS, UNCHECKED, Unit, read_bytes, units

if TYPE_CHECKING:
    from pathlib import Path

SMALL = TRANSACTIONS[: next(unit.end for unit in units(TRANSACTIONS) if unit.end > 1500)]
"""Its first groups: each test here reads it once a byte."""
BORDERS = [event.offset for event in walk(SMALL)]
UNITS = units(SMALL)
FIRST = BORDERS[1]
"""Before this nothing can be read: the FORMAT_DESCRIPTION is not whole."""


def event_at(offset: int) -> int:
    """Where the event starts that this byte is in."""
    return BORDERS[bisect_right(BORDERS, offset) - 1]


def unit_at(offset: int) -> Unit:
    return next(unit for unit in UNITS if unit.start <= offset < unit.end)


def changed(offset: int, by: int = 0xFF, data: bytes = SMALL) -> bytes:
    copy = bytearray(data)
    copy[offset] ^= by
    return bytes(copy)


def test_every_truncation(tmp_path: Path) -> None:
    for length in range(len(SMALL)):
        got = read_bytes(tmp_path, SMALL[:length])
        if length < FIRST:
            assert isinstance(got.error, ProtocolError), length
            assert not got.ranges
            continue
        border = length if length in BORDERS else event_at(length)
        assert got.data == SMALL[4:border], length
        group = unit_at(border)
        assert got.whole == ([True] * (group.start > 4) + [False] * (border > group.start)), length
        if length == border:
            assert got.error is None
        else:
            assert isinstance(got.error, TruncatedError)
            assert got.error.offset == border
            assert str(tmp_path / "file") in got.error.message


def test_every_changed_byte(tmp_path: Path) -> None:
    for offset in range(len(SMALL)):
        got = read_bytes(tmp_path, changed(offset))
        assert got.error is not None, offset
        if offset < FIRST:
            assert 0 <= (got.error.offset or 0) < FIRST, offset
            assert not got.ranges
            continue
        place = event_at(offset)
        assert got.error.offset == place, offset
        assert got.data == SMALL[4:place], offset
        in_length = 9 <= offset - place < 13
        assert in_length or isinstance(got.error, ChecksumError), offset


def test_every_changed_byte_costs_one_group(tmp_path: Path) -> None:
    for offset in range(FIRST, len(SMALL)):
        got = read_bytes(tmp_path, changed(offset), max_bytes=1, skip_damaged=True)
        lost = unit_at(offset)
        assert got.error is None
        whole = [place for place, whole in zip(got.places, got.whole, strict=True) if whole]
        assert whole == [unit for unit in UNITS if unit != lost], offset
        [damage] = got.damage
        assert damage.offset == event_at(offset), offset
        assert isinstance(damage.error, ProtocolError)
        if lost == UNITS[-1]:  # what stands before the damage is a group without its end, as at any end of a file
            assert damage.end == len(SMALL)
            assert got.data.endswith(SMALL[lost.start : damage.offset])
        else:
            assert (damage.begin, damage.end) == lost, offset
            assert damage.events == len([border for border in BORDERS if lost.start <= border < damage.offset])


@pytest.mark.parametrize("size", [1, 18, 19, 100, 5000])
@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"binlog "])
def test_garbage_between_groups(tmp_path: Path, size: int, filler: bytes) -> None:
    at = UNITS[len(UNITS) // 2].start
    garbage = (filler * size)[:size]
    data = SMALL[:at] + garbage + SMALL[at:]
    got = read_bytes(tmp_path, data)
    assert got.data == SMALL[4:at]
    assert got.error is not None
    assert got.error.offset == at
    # What follows stands elsewhere than it says, so nothing of it can be told from what was made up: it is left out.
    got = read_bytes(tmp_path, data, skip_damaged=True)
    assert got.error is None
    assert got.data == SMALL[4:at]
    assert [(damage.offset, damage.end) for damage in got.damage] == [(at, len(data))]


def test_overwritten_with_zeros(tmp_path: Path) -> None:
    """As a file system leaves a page that was never written."""
    begin, end = UNITS[3].start + 30, UNITS[5].start + 5
    data = SMALL[:begin] + bytes(end - begin) + SMALL[end:]
    got = read_bytes(tmp_path, data, max_bytes=1, skip_damaged=True)
    assert got.places == [*UNITS[:3], *UNITS[6:]]
    assert got.data + b"" == SMALL[4 : UNITS[3].start] + SMALL[UNITS[6].start :]
    assert [(damage.begin, damage.end) for damage in got.damage] == [(UNITS[3].start, UNITS[6].start)]
    assert got.damage[0].size == UNITS[6].start - UNITS[3].start


def test_several_damages(tmp_path: Path) -> None:
    data = SMALL
    for number in (2, 3, 6):
        data = changed(UNITS[number].end - 1, data=data)
    got = read_bytes(tmp_path, data, max_bytes=1, skip_damaged=True)
    assert got.places == [unit for number, unit in enumerate(UNITS) if number not in (2, 3, 6)]
    assert [damage.begin for damage in got.damage] == [UNITS[number].start for number in (2, 3, 6)]


def test_too_many_damages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_DAMAGES", 2)
    data = SMALL
    for number in (2, 4, 6):
        data = changed(UNITS[number].end - 1, data=data)
    got = read_bytes(tmp_path, data, max_bytes=1, skip_damaged=True)
    assert got.error is not None
    assert len(got.damage) == 2
    assert got.places[-1].end == UNITS[6].start or not got.whole[-1]


def test_a_torn_end_may_be_skipped_too(tmp_path: Path) -> None:
    data = SMALL[:-5]
    got = read_bytes(tmp_path, data, skip_damaged=True)
    assert got.error is None
    assert [(damage.offset, damage.end) for damage in got.damage] == [(BORDERS[-1], len(data))]
    assert got.data == SMALL[4 : BORDERS[-1]]


def test_without_checksums_lengths_are_checked(tmp_path: Path) -> None:
    borders = [event.offset for event in walk(UNCHECKED)]
    for number, border in enumerate(some(borders[1:-1]), 1):
        got = read_bytes(tmp_path, changed(border + 12, data=UNCHECKED))  # the length's highest byte
        assert got.error is not None, number
        assert got.error.offset == border
        assert got.data == UNCHECKED[4:border]
        got = read_bytes(tmp_path, changed(border + 12, data=UNCHECKED), max_bytes=1, skip_damaged=True)
        lost = next(unit for unit in units(UNCHECKED) if unit.start <= border < unit.end)
        assert got.places == [unit for unit in units(UNCHECKED) if unit != lost]


@settings(max_examples=150)
@given(data=st.data())
def test_any_change_is_our_error_or_none(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without checksums nearly everything passes: it must come out in order, end, and go around damage if told to."""
    mutated = bytearray(data.draw(st.sampled_from([UNCHECKED, TRANSACTIONS])))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(4, len(mutated) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "number"]))
        if kind == "flip":
            mutated[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del mutated[at : at + data.draw(st.integers(1, 100))]
        elif kind == "insert":
            mutated[at:at] = data.draw(st.binary(min_size=1, max_size=40))
        else:
            number = data.draw(st.sampled_from([0, 1, 18, 19, 23, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 30]))
            mutated[at : at + 4] = number.to_bytes(4, "little")
    folder = tmp_path_factory.getbasetemp()
    for skip in (False, True):
        got = read_bytes(folder, bytes(mutated), skip_damaged=skip, max_bytes=data.draw(st.integers(1, 3000)))
        assert all(a.end <= b.start for a, b in zip(got.places, got.places[1:], strict=False))
        assert all(bytes(part.data) == bytes(mutated[part.offset : part.end]) for part in got.ranges)
        assert skip or len(got.data) <= len(mutated)
        if not skip and got.ranges:
            assert got.data == bytes(mutated[4 : 4 + len(got.data)])
