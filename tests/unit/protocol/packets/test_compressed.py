"""Frames of a compressed connection, whole and in pieces of any size, and those that no server sends."""

from __future__ import annotations

import contextlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ChecksumError
from replica.protocol.packets.compressed import FRAME_HEADER_LENGTH, MAX_FRAME, READ_BYTES, FrameReader, frames


def deflated(data: bytes, sequence: int = 0) -> bytes:
    packed = zlib.compress(data)
    return len(packed).to_bytes(3, "little") + bytes((sequence,)) + len(data).to_bytes(3, "little") + packed


def feed(reader: FrameReader, data: bytes) -> None:
    while data:
        space = reader.space()
        piece, data = data[: len(space)], data[len(space) :]
        space[: len(piece)] = piece
        reader.received(len(piece))


def read(reader: FrameReader, size: int = 1 << 16) -> bytes:
    out, target = bytearray(), bytearray(size)
    while count := reader.read_into(memoryview(target)):
        out += target[:count]
    return bytes(out)


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=3000), st.booleans()), max_size=8),
    st.lists(st.integers(1, 700), min_size=1, max_size=5),
    st.integers(1, 2000),
)
def test_bytes_come_out_whatever_the_pieces(contents: list[tuple[bytes, bool]], steps: list[int], target: int) -> None:
    wire = b"".join(deflated(data) if packed else frames(data) for data, packed in contents)
    reader, out, at, turn = FrameReader(), b"", 0, 0
    while at < len(wire):
        step = steps[turn % len(steps)]
        feed(reader, wire[at : at + step])
        out += read(reader, target)
        at, turn = at + step, turn + 1
    assert out == b"".join(data for data, _ in contents)


def test_a_reader_that_is_not_emptied_keeps_everything() -> None:
    content = [random.Random(n).randbytes(5000) for n in range(100)]
    reader = FrameReader()
    for data in content:
        feed(reader, deflated(data))
        reader.read_into(memoryview(bytearray(1)))
    assert read(reader) == b"".join(content)[100:]


def test_frames_of_the_largest_size_both_ways() -> None:
    data = bytes(range(256)) * ((MAX_FRAME + 300) // 256)
    wire = frames(data)
    assert wire[:7] == b"\xff\xff\xff\x00\x00\x00\x00"
    assert wire[7 + MAX_FRAME : 14 + MAX_FRAME] == (len(data) - MAX_FRAME).to_bytes(3, "little") + b"\x01\0\0\0"
    reader = FrameReader()
    feed(reader, wire + deflated(data[:MAX_FRAME]))
    assert read(reader, 1 << 20) == data + data[:MAX_FRAME]


def test_what_we_send_is_stored_in_one_frame() -> None:
    assert frames(b"ping") == b"\x04\0\0\0\0\0\0ping"
    assert frames(b"") == b""


def test_room_for_a_frame_is_made_when_it_has_begun_and_not_more() -> None:
    reader = FrameReader()
    assert len(reader.space()) == READ_BYTES
    feed(reader, MAX_FRAME.to_bytes(3, "little") + b"\0" + MAX_FRAME.to_bytes(3, "little"))
    assert len(reader.space()) == MAX_FRAME
    assert reader.read_into(memoryview(bytearray(10))) == 0


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\0\0\0\0\0\0\0", "is empty, which no server sends"),
        (b"\0\0\0\0\x05\0\0", "is empty, which no server sends"),
        (b"\x03\0\0\0\xff\xff\xffabc", "no deflate stream can reach"),
        (b"\x03\0\0\0\x05\0\0abc", "cannot be inflated"),
        (deflated(b"x" * 900)[:-1] + b"\0", "cannot be inflated"),
        (deflated(b"x" * 30).replace(b"\x1e\0\0", b"\x1f\0\0", 1), "does not inflate to the 31 bytes"),
        (deflated(b"x" * 30).replace(b"\x1e\0\0", b"\x1d\0\0", 1), "does not inflate to the 29 bytes"),
        (deflated(b"x" * 900).replace(b"\x84\x03\0", b"\x83\x03\0", 1), "inflate"),
    ],
)
def test_frames_that_no_server_sends(frame: bytes, words: str) -> None:
    reader = FrameReader()
    feed(reader, deflated(b"good") + frame)
    target = memoryview(bytearray(4))
    assert reader.read_into(target) == 4
    assert bytes(target) == b"good"
    with pytest.raises(ChecksumError, match=words):
        reader.read_into(target)


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=4))
def test_damage_is_damage_and_nothing_else(noise: bytes, flips: list[tuple[int, int]]) -> None:
    wire = bytearray(deflated(b"first" * 60) + noise + deflated(noise) + frames(b"last"))
    for at, bits in flips:
        if at < len(wire):
            wire[at] ^= bits
    reader = FrameReader()
    feed(reader, bytes(wire))
    with contextlib.suppress(ChecksumError):
        read(reader)
    assert len(reader.space()) <= READ_BYTES + MAX_FRAME + FRAME_HEADER_LENGTH


def test_a_bomb_takes_no_memory_before_it_is_refused() -> None:
    reader = FrameReader()
    stream = zlib.compress(bytes(40_000))[:20]
    feed(reader, len(stream).to_bytes(3, "little") + b"\0" + MAX_FRAME.to_bytes(3, "little") + stream)
    with pytest.raises(ChecksumError, match="no deflate stream"):
        read(reader)
    assert len(reader.space()) <= READ_BYTES


def test_what_stands_before_damage_is_given_first() -> None:
    reader = FrameReader()
    feed(reader, deflated(b"one") + deflated(b"two") + b"\0" * FRAME_HEADER_LENGTH)
    target = memoryview(bytearray(100))
    assert bytes(target[: reader.read_into(target)]) == b"onetwo"
    for _ in range(2):
        with pytest.raises(ChecksumError):
            reader.read_into(target)


def test_a_header_alone_is_not_a_frame() -> None:
    reader = FrameReader()
    wire = deflated(b"later")
    for n in range(FRAME_HEADER_LENGTH, len(wire)):
        part = FrameReader()
        feed(part, wire[:n])
        assert read(part) == b""
    feed(reader, wire)
    assert read(reader) == b"later"
