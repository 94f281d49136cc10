"""Compressed files: whole, in several members, cut off, damaged, and hostile."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import random
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replica.errors import ProtocolError, TruncatedError
from replica.readers.files.readers import COMPRESSIONS, Decompressed, FileReader
from tests.unit.readers.files.reading import TRANSACTIONS, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.readers.files.readers import ByteSource


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data))


def zstd_stream(data: bytes) -> bytes:
    """As the tool writes it: with no size in its head."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "zstd-stream": zstd_stream,
    "xz": lzma.compress,
}
every_form = pytest.mark.parametrize("compress", FORMS.values(), ids=FORMS)
NOISE = random.Random(1).randbytes(300_000)


def decompressed(folder: Path, data: bytes, size: int = 1 << 20) -> tuple[bytes, ProtocolError | None]:
    """All that comes out of a file, and the error after it."""
    path = folder / "file"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    kind = next(found for magic, found in COMPRESSIONS.items() if data.startswith(magic))
    reader = Decompressed("file", FileReader(descriptor), *kind)
    result = drained(reader, size)
    os.close(descriptor)
    return result


def drained(reader: ByteSource, size: int) -> tuple[bytes, ProtocolError | None]:
    out, target = bytearray(), bytearray(size)
    try:
        while count := reader.readinto(memoryview(target)):
            out += target[:count]
    except ProtocolError as error:
        return bytes(out), error
    return bytes(out), None


@every_form
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_what_went_in_comes_out(tmp_path: Path, compress: Callable[[bytes], bytes], size: int) -> None:
    data = TRANSACTIONS + NOISE[: 10 * size]
    assert decompressed(tmp_path, compress(data), size) == (data, None)


@every_form
def test_members_in_a_row(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    members = [TRANSACTIONS[:100], b"", NOISE, TRANSACTIONS[100:]]
    data = b"".join(compress(member) for member in members)
    assert decompressed(tmp_path, data) == (b"".join(members), None)
    got = read_bytes(tmp_path, compress(TRANSACTIONS[:1000]) + compress(TRANSACTIONS[1000:]))
    assert (got.data, got.error) == (TRANSACTIONS[4:], None)


@pytest.mark.parametrize("name", ["gzip", "xz"])
def test_zeros_may_pad_the_end(tmp_path: Path, name: str) -> None:
    data = FORMS[name](TRANSACTIONS)
    assert decompressed(tmp_path, data + bytes(400_000)) == (TRANSACTIONS, None)


@every_form
def test_something_else_behind(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    out, error = decompressed(tmp_path, compress(TRANSACTIONS) + b"something else")
    assert out == TRANSACTIONS
    assert error is not None
    assert error.offset == len(TRANSACTIONS)


@every_form
def test_every_truncation(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    data = compress(TRANSACTIONS[:1000])
    longest = 0
    for length in range(6, len(data)):
        out, error = decompressed(tmp_path, data[:length])
        assert isinstance(error, TruncatedError), length
        assert TRANSACTIONS.startswith(out)
        assert error.offset == len(out) >= longest
        longest = len(out)
    assert longest > 900 or compress is not gzip.compress


@every_form
def test_a_truncated_file_delivers_what_is_before(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """Members are the only places where all three formats let go of everything they were given."""
    whole = compress(TRANSACTIONS[:1500])
    got = read_bytes(tmp_path, whole + compress(TRANSACTIONS[1500:])[:-1])
    assert isinstance(got.error, TruncatedError)
    assert len(got.data) >= 1400
    assert TRANSACTIONS[4:].startswith(got.data)
    assert read_bytes(tmp_path, whole[:-3]).error is not None


@every_form
def test_damage_costs_nothing_before_it(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """What is before the damage comes out to the last byte, however much was asked for at once."""
    data = compress(TRANSACTIONS * 100)
    noticed = 0
    for eighth in range(1, 8):
        damaged = bytearray(data)
        damaged[len(data) * eighth // 8] ^= 0xFF
        coarse, error = decompressed(tmp_path, bytes(damaged))
        fine, other = decompressed(tmp_path, bytes(damaged), 1000)
        assert coarse == fine
        assert (error is None) == (other is None)
        assert error is None or error.offset == len(coarse)
        noticed += error is not None
    assert noticed  # zstd without its checksum does not see everything


@every_form
def test_every_changed_byte(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """Whatever the format does not notice the checksums of the events do."""
    data = compress(TRANSACTIONS)
    step = max(1, len(data) // 150)
    for offset in range(6, len(data), step):
        changed = bytearray(data)
        changed[offset] ^= 0x55
        got = read_bytes(tmp_path, bytes(changed))
        assert TRANSACTIONS[4:].startswith(got.data), offset
        assert got.error is not None or got.data == TRANSACTIONS[4:], offset


@every_form
def test_a_bomb_takes_no_memory(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """One event of zeros after the first: refused at once, the other 16 MB are never made."""
    path = tmp_path / "file"
    path.write_bytes(compress(TRANSACTIONS[:256] + bytes(16 << 20)))
    got = read_bytes(tmp_path, path.read_bytes())
    assert got.error is not None
    assert len(got.data) < 256


def test_xz_that_asks_for_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.readers.files.readers.HISTORY_BYTES", 1 << 20)
    _, error = decompressed(tmp_path, lzma.compress(TRANSACTIONS))
    assert error is not None
    assert "limit" in error.message


def write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as sink:
        sink.write(data)


@every_form
def test_through_a_pipe(compress: Callable[[bytes], bytes]) -> None:
    """Where nothing can be read again, damage is still an error with its place."""
    data = bytearray(compress(NOISE))
    for damaged in (False, True):
        if damaged:
            data[len(data) // 2] ^= 0xFF
        read_end, write_end = os.pipe()
        writer = Thread(target=write_all, args=(write_end, bytes(data)))
        writer.start()
        kind = next(found for magic, found in COMPRESSIONS.items() if data.startswith(magic))
        reader = Decompressed("pipe", FileReader(read_end), *kind)
        out, error = drained(reader, 100_000)
        os.close(read_end)
        writer.join()
        assert (error is None and out == NOISE) or damaged
        assert error is None or error.offset == len(out)
