"""Windows: any chunking gives the same ranges, memory follows the stream, a large transaction goes to disk."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ConfigError, ProtocolError
from replica.protocol.events.decode import decode_description
from replica.readers.files import readers
from replica.readers.files.ranges import Walk
from replica.readers.files.readers import StreamWindow
from tests.unit.readers.files.reading import DESCRIPTION, TRANSACTIONS, as_file, units
from tests.unit.readers.files.reading import read_bytes as read_bytes_of
from tests.unit.readers.files.test_ranges import GROUP, ROWS, XID, gtid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.readers.files.ranges import Damage, FileRange


class Chunks:
    """A reader that gives these pieces, and fails at the end if told to."""

    def __init__(self, pieces: list[bytes], fault: ProtocolError | None = None) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self._fault = fault

    def readinto(self, target: memoryview, /) -> int:
        if not self._pieces:
            if self._fault:
                raise self._fault
            return 0
        piece = self._pieces[0][: len(target)]
        target[: len(piece)] = piece
        self._pieces[0] = self._pieces[0][len(piece) :]
        if not self._pieces[0]:
            self._pieces.pop(0)
        return len(piece)


def ranges(reader: Chunks, *, max_bytes: int = 8 << 20, damage: list[Damage] | None = None) -> Iterator[FileRange]:
    stream = StreamWindow(reader)
    while stream.end < len(DESCRIPTION) + 4 and stream.more(0):
        pass
    walk = Walk(
        "file",
        stream,
        decode_description(DESCRIPTION),
        start=4,
        stop=None,
        max_bytes=max_bytes,
        cut_at_ddl=False,
        verify=True,
    )
    return walk.ranges(damage)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in pairwise(borders)]


def shrink(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    for name, size in sizes.items():
        monkeypatch.setattr(readers, name, size)


@settings(max_examples=60)
@given(
    places=st.lists(st.integers(0, len(TRANSACTIONS)), max_size=50),
    read_bytes=st.integers(1, 3000),
    buffer_bytes=st.integers(3000, 9000),
    max_bytes=st.integers(1, 9000),
)
def test_any_chunking(places: list[int], read_bytes: int, buffer_bytes: int, max_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch, READ_BYTES=read_bytes, BUFFER_BYTES=buffer_bytes, MEMORY_BYTES=5000)
        parts = list(ranges(Chunks(cut(TRANSACTIONS, places)), max_bytes=max_bytes))
    assert b"".join(part.data for part in parts) == TRANSACTIONS[4:]
    ends = {unit.end for unit in units(TRANSACTIONS)}
    assert all(part.end in ends and part.whole for part in parts)
    small = {unit.end - unit.start for unit in units(TRANSACTIONS)}
    assert all(len(part.data) <= max_bytes or len(part.data) in small for part in parts)


@settings(max_examples=80)
@given(
    changes=st.lists(st.tuples(st.integers(300, len(TRANSACTIONS) - 1), st.integers(1, 255)), min_size=1, max_size=4),
    read_bytes=st.integers(1, 3000),
    max_bytes=st.integers(1, 9000),
)
def test_damage_is_gone_around_as_in_a_mapped_file(
    changes: list[tuple[int, int]], read_bytes: int, max_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(TRANSACTIONS)
    for place, by in changes:
        data[place] ^= by
    mapped = read_bytes_of(tmp_path_factory.getbasetemp(), bytes(data), max_bytes=max_bytes, skip_damaged=True)
    damage: list[Damage] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch, READ_BYTES=read_bytes, BUFFER_BYTES=3000, MEMORY_BYTES=5000, GROWTH_BYTES=5000)
        parts = list(ranges(Chunks([bytes(data)]), max_bytes=max_bytes, damage=damage))
    assert b"".join(part.data for part in parts) == mapped.data
    assert [part.whole for part in parts if not part.whole] == [whole for whole in mapped.whole if not whole]
    places = [[one[:4] for one in found] for found in (damage, mapped.damage)]
    assert places[0] == places[1]


def test_a_byte_at_a_time() -> None:
    data = as_file([GROUP, GROUP])
    assert b"".join(part.data for part in ranges(Chunks(cut(data, list(range(len(data))))))) == data[4:]


def test_the_error_of_a_reader_comes_after_what_it_read() -> None:
    fault = ProtocolError("torn", offset=len(TRANSACTIONS))
    got = []
    with pytest.raises(ProtocolError) as caught:
        got.extend(ranges(Chunks([TRANSACTIONS], fault), max_bytes=1))
    assert caught.value is fault
    assert b"".join(part.data for part in got) == TRANSACTIONS[4:]


def mapped_files() -> set[str]:
    """The inodes of mapped temporary files, which have no name any more."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return {line.split()[4] for line in lines if "mariadb-replica-" in line or line.endswith("(deleted)")}


def test_a_large_transaction_goes_to_disk_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, READ_BYTES=4096, BUFFER_BYTES=20_000, MEMORY_BYTES=50_000, GROWTH_BYTES=100_000)
    large = gtid(1) + ROWS * 10_000 + XID
    data = as_file([GROUP, large] + [GROUP] * 5000)
    gc.collect()  # what earlier tests left mapped must not go in between
    before = mapped_files()
    most, got = 0, b""
    for part in ranges(Chunks([data]), max_bytes=10_000):
        most = max(most, len(mapped_files() - before))
        assert len(part.data) <= 10_000 or part.data == large
        got += part.data
        del part
    assert got == data[4:]
    assert most == 1
    assert mapped_files() <= before


def test_views_of_a_large_transaction_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, READ_BYTES=4096, BUFFER_BYTES=20_000, MEMORY_BYTES=50_000, GROWTH_BYTES=100_000)
    large = gtid(1) + ROWS * 10_000 + XID
    data = as_file([GROUP, large, large] + [GROUP] * 2000)
    parts = list(ranges(Chunks([data]), max_bytes=10_000))
    assert b"".join(part.data for part in parts) == data[4:]


def test_no_room_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, READ_BYTES=4096, BUFFER_BYTES=20_000, MEMORY_BYTES=50_000, GROWTH_BYTES=1 << 60)
    with pytest.raises(ConfigError, match="No room for a transaction"):
        list(ranges(Chunks([as_file([gtid(1) + ROWS * 10_000 + XID])]), max_bytes=10_000))


def test_a_claimed_length_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream_sizes: list[int] = []
    make_room = StreamWindow._make_room
    monkeypatch.setattr(
        StreamWindow, "_make_room", lambda w, keep: stream_sizes.append(len(w._buffer)) or make_room(w, keep)
    )
    event = bytearray(ROWS)
    event[9:13] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match="1073741824 bytes, but only"):
        list(ranges(Chunks([as_file([gtid(1), bytes(event)])])))
    assert set(stream_sizes) == {readers.BUFFER_BYTES}
