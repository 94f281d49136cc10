"""Streams of encrypted events: any chunking and batch size, events larger than a batch, and damage in them."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.events.binlog_file import encode_event, walk
from replica.readers.files import decrypted
from replica.readers.files.decrypted import Decrypted, EventCipher
from replica.readers.files.encryption import KeyRing
from tests.kit.some import some
from tests.unit.readers.files.encrypting import encrypt_again, encrypt_event
from tests.unit.readers.files.reading import CRC32, DESCRIPTION, NONE, UNCHECKED, read_bytes, units
from tests.unit.readers.files.test_readers import drained
from tests.unit.readers.files.test_window import Chunks, cut
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.constants import ChecksumAlgorithm

SENT = (HERE / "11.8" / "encryption.cbc.sent").read_bytes()
KEY = bytes(range(32))
NONCE = b"\xff" * 8 + b"abcd"
RING = KeyRing({(1, 9): KEY})
ALGORITHMS = ("cbc", "ctr")
EVENTS = [event.offset for event in walk(SENT)]
UNITS = units(SENT)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def small_batches(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(decrypted, "BATCH_BYTES", size)
    monkeypatch.setattr(decrypted, "MAX_SEARCHED_BYTES", size // 2)


def stream(sizes: list[int], offset: int, checksum: ChecksumAlgorithm) -> list[bytes]:
    """Events with these body sizes from this place of the file on."""
    events = []
    for number, size in enumerate(sizes):
        offset += 19 + size + (4 if checksum else 0)
        body = bytes((number + i) & 0xFF for i in range(size))
        events.append(encode_event(23, body, server_id=number, checksum=checksum, log_pos=offset, timestamp=number * 7))
    return events


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 100) | st.integers(0, 3000), max_size=40),
    chunks=st.lists(st.integers(0, 4000), max_size=20),
    batch=st.integers(64, 2000) | st.just(1 << 20),
    algorithm=st.sampled_from(ALGORITHMS),
    checksum=st.sampled_from([CRC32, NONE]),
    start=st.sampled_from([0, 4, 300, (1 << 32) - 100]),
)
def test_events_of_any_length_in_any_pieces(
    sizes: list[int], chunks: list[int], batch: int, algorithm: str, checksum: ChecksumAlgorithm, start: int
) -> None:
    """The nonce is such that counters carry over 64 bits."""
    events = stream(sizes, start, checksum)
    secret, offset = b"", start
    for event in events:
        secret += encrypt_event(event, offset, KEY, NONCE, algorithm)
        offset += len(event)
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_batches(monkeypatch, batch)
        cipher = EventCipher(KEY, NONCE, algorithm)  # type: ignore[arg-type]
        source = Chunks(cut(secret, [place for place in chunks if place < len(secret)]))
        reader = Decrypted(b"", source, cipher, checksum)
        reader._offset = start
        assert drained(reader, 1000) == (b"".join(events), None)


@every_algorithm
@pytest.mark.parametrize("batch", [100, 1 << 20])
def test_every_truncation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, batch: int) -> None:
    small_batches(monkeypatch, batch)
    data = encrypt_again(SENT, KEY, 9, NONCE, algorithm)
    for length in [*range(EVENTS[2], EVENTS[12], 3), *range(EVENTS[12], len(SENT), 97)]:
        got = read_bytes(tmp_path, data[:length], keys=RING)
        border = max(event for event in [*EVENTS, len(SENT)] if event <= length)
        assert got.data[300:] == SENT[304:border], length
        if border < length:
            assert isinstance(got.error, TruncatedError)
            assert got.error.offset == border
        else:
            assert got.error is None


@every_algorithm
@pytest.mark.parametrize("batch", [200, 1 << 20])
def test_every_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, batch: int) -> None:
    small_batches(monkeypatch, batch)
    data = encrypt_again(SENT, KEY, 9, NONCE, algorithm)
    for begin, end in some(list(pairwise(EVENTS))[3:40:6]):
        for offset in [*range(begin, begin + 24), end - 1]:
            changed = bytearray(data)
            changed[offset] ^= 0xFF
            got = read_bytes(tmp_path, bytes(changed), keys=RING)
            assert isinstance(got.error, ProtocolError), offset
            assert got.error.offset == begin, offset
            assert got.data[300:] == SENT[304:begin], offset


@every_algorithm
@pytest.mark.parametrize("by", [0x01, 0x80, 0xFF])
def test_damage_costs_one_group(tmp_path: Path, algorithm: str, by: int) -> None:
    """Also a damaged length, after which the next event has to be found among encrypted bytes."""
    data = encrypt_again(SENT, KEY, 9, NONCE, algorithm)
    for begin, end in some(list(pairwise(EVENTS))[4:-4:7]):
        for offset in [begin, begin + 4, *range(begin + 9, begin + 13), begin + 18, end - 1]:
            changed = bytearray(data)
            changed[offset] ^= by
            got = read_bytes(tmp_path, bytes(changed), keys=RING, skip_damaged=True, max_bytes=1)
            lost = next(unit for unit in UNITS if unit.start <= begin < unit.end)
            assert [place for place in got.places[2:] if place != lost] == [
                unit for unit in UNITS[2:] if unit != lost
            ], offset
            assert [damage.offset for damage in got.damage] == [begin]


@every_algorithm
def test_a_damaged_length_without_checksums_ends_the_file(tmp_path: Path, algorithm: str) -> None:
    start = EVENTS[2]
    events = stream([30] * 20, start, NONE)
    secret = b"".join(
        encrypt_event(event, start + 49 * number, KEY, NONCE, algorithm) for number, event in enumerate(events)
    )
    changed = bytearray(secret)
    changed[49 * 5 + 12] ^= 0xFF
    cipher = EventCipher(KEY, NONCE, algorithm)  # type: ignore[arg-type]
    reader = Decrypted(b"", Chunks([bytes(changed)]), cipher, NONE)
    reader._offset = start
    out, _ = drained(reader, 1000)
    assert out[: 49 * 5] == b"".join(events[:5])
    assert len(out) == len(secret)
    assert struct.unpack_from("<I", out, 49 * 5 + 9)[0] > 1 << 30


def test_the_error_of_the_source_comes_last() -> None:
    events = stream([30] * 5, 0, CRC32)
    secret = b"".join(encrypt_event(event, 53 * number, KEY, NONCE, "cbc") for number, event in enumerate(events))
    fault = TruncatedError("torn", offset=7)
    reader = Decrypted(b"head", Chunks([secret], fault), EventCipher(KEY, NONCE, "cbc"), CRC32)
    reader._offset = 0
    out, error = drained(reader, 10_000)
    assert error is fault
    assert out == b"head" + b"".join(events)


@every_algorithm
def test_a_second_description_in_a_relay_log(algorithm: str) -> None:
    """MariaDB's own replica writes checksums or not as its primary does."""
    start = EVENTS[2]
    before = stream([30] * 4, start, CRC32)
    others = [DESCRIPTION, UNCHECKED[4 : 4 + len(DESCRIPTION)]]
    after = stream([30] * 4, start, NONE)
    events = [*before, others[1], *after, others[0], *before]
    secret, offset = b"", start
    for event in events:
        secret += encrypt_event(event, offset, KEY, NONCE, algorithm)
        offset += len(event)
    reader = Decrypted(b"", Chunks([secret]), EventCipher(KEY, NONCE, algorithm), CRC32)  # type: ignore[arg-type]
    reader._offset = start
    assert drained(reader, 1000) == (b"".join(events), None)
