from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.files.index import (
    SEALED_FLAG,
    FileIndex,
    IndexEntry,
    decode_entries,
    encode_entry,
    encode_header,
    last_entry,
)

if TYPE_CHECKING:
    from pathlib import Path


def entry(end: int, *, flags: int = 0, domains: int = 2) -> IndexEntry:
    rows = b"".join(struct.pack("<IIQ", d, 1, end + d) for d in range(domains))
    return IndexEntry(end, 5_000_000_000 + end, 1_700_000_000, flags, domains - 1, rows)


def test_what_was_ever_written_stays_readable() -> None:
    # Entries as of version 1, the first release; version 2 has another flag.
    written = bytes.fromhex(
        "48000000"  # length
        "01000000"  # flags: sealed
        "6400000000000000"  # end offset
        "64f2052a01000000"  # primary position
        "00f15365"  # time
        "02000000"  # domains
        "01000000"  # the group's domain
        "0000000001000000640000000000000001000000010000006500000000000000"
    )
    assert encode_entry(entry(100, flags=1))[:-4] == written
    assert encode_header() == b"RELAYIDX" + bytes.fromhex("0200000000000000")


def test_encoding_and_decoding_are_inverse() -> None:
    entries = [entry(10), entry(20, domains=1), entry(30, flags=3, domains=9)]
    data = b"".join(map(encode_entry, entries))
    assert decode_entries(data) == (entries, len(data))
    assert entries[2].sealed
    assert entries[2].unordered
    assert entries[1].position == GtidPosition.parse("0-1-20")


def test_every_truncation_and_every_flipped_bit_ends_the_reading() -> None:
    good, last = encode_entry(entry(10)), encode_entry(entry(20))
    for length in range(len(last)):
        assert decode_entries(good + last[:length]) == ([entry(10)], len(good))
    for bit in range(len(last) * 8):
        flipped = bytearray(last)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_entries(good + bytes(flipped)) == ([entry(10)], len(good))


def test_lookups(tmp_path: Path) -> None:
    path = tmp_path / "relay.000001.idx"
    path.write_bytes(encode_header() + b"".join(encode_entry(entry(e)) for e in (100, 200, 300)))
    index = FileIndex(path)
    index.refresh()
    assert [(i.end if (i := index.at_or_before(o)) else None) for o in (99, 100, 250, 999)] == [None, 100, 200, 300]
    assert [(i.end if (i := index.at_or_after(o)) else None) for o in (0, 100, 101, 301)] == [100, 100, 200, None]
    reached = [index.reached(entry(e).position) for e in (99, 100, 250, 300)]
    assert [r.end if r else None for r in reached] == [None, 100, 200, 300]


def test_refreshing_reads_on_and_passes_a_half_written_entry(tmp_path: Path) -> None:
    path = tmp_path / "relay.000001.idx"
    first, second = encode_entry(entry(100)), encode_entry(entry(200))
    path.write_bytes(encode_header()[:5])
    index = FileIndex(path)
    index.refresh()
    path.write_bytes(encode_header() + first + second[:20])
    index.refresh()
    assert index.ends == [100]
    path.write_bytes(encode_header() + first + second)
    index.refresh()
    assert index.ends == [100, 200]


@pytest.mark.parametrize("data", [b"NOTANIDX" + bytes(8), b"RELAYIDX" + bytes.fromhex("0100000000000000")])
def test_foreign_and_later_versions_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "relay.000001.idx"
    path.write_bytes(data)
    with pytest.raises(RelayError, match="version 2"):
        FileIndex(path).refresh()


def test_a_missing_sidecar_is_named(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match=r"relay\.000004\.idx"):
        FileIndex(tmp_path / "relay.000004.idx").refresh()


@pytest.mark.parametrize("domains", [0, 1, 60, 61, 200, 4096])
@pytest.mark.parametrize("before", [0, 1, 700])
def test_the_last_entry_is_read_from_the_end(tmp_path: Path, domains: int, before: int) -> None:
    path = tmp_path / "relay.000001.idx"
    # Sequence numbers that look like lengths of entries.
    rows = b"".join(struct.pack("<IIQ", d, 40, 56) for d in range(domains))
    made = [IndexEntry(1000 + n, 77, 99, 0, 0, rows) for n in range(min(before, 3) if domains > 100 else before)]
    last = IndexEntry(9_000_000, 77, 99, SEALED_FLAG, 0, rows)
    path.write_bytes(encode_header() + b"".join(map(encode_entry, made)))
    assert last_entry(path) is None, "not sealed"
    with path.open("ab") as file:
        file.write(encode_entry(last))
    assert last_entry(path) == last


def test_no_last_entry_where_the_end_is_torn_or_foreign(tmp_path: Path) -> None:
    path = tmp_path / "relay.000001.idx"
    whole = encode_header() + encode_entry(IndexEntry(1, 2, 3, SEALED_FLAG, 0, b""))
    assert last_entry(path) is None
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert last_entry(path) is None
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        assert last_entry(path) is None or at in range(12, 16), "the four spare bytes of the header"
