"""The receiving end of a table reader, against a plain splitter of packets."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import DisconnectedError, ProtocolError
from replica.native.arrays import address
from replica.protocol.packets.packets import MAX_PIECE, PacketSplitter, pack
from replica.snapshot.connection import packets as module
from replica.snapshot.connection.kernel_packets import whole_rows
from replica.snapshot.connection.packets import STRETCH_BYTES, PacketReceiver
from tests.unit.snapshot.wired import WAYS, Way, packets, received

EOF = b"\xfe\0\0\x02\0"
ROWS = st.lists(st.binary(max_size=60).map(lambda tail: b"\0" + tail), max_size=12)


def plain_rows(data: bytes, start: int, end: int) -> int:
    """What `whole_rows` finds, step by step."""
    while end - start >= 4:
        length = int.from_bytes(data[start : start + 3], "little")
        payload = data[start + 4 : min(start + 4 + length, end)]
        if len(payload) < length or not payload or length == MAX_PIECE or payload[0]:
            break
        start += 4 + length
    return start


def all_rows(receiver: PacketReceiver) -> list[bytes]:
    rows: list[bytes] = []
    while (stretch := receiver.rows()) is not None:
        data = stretch.data[stretch.start : stretch.end].tobytes()
        rows += [data] if stretch.joined else [bytes(row) for row in PacketSplitter().feed(data)]
    return rows


def all_rows_and_end(receiver: PacketReceiver) -> tuple[list[bytes], bytes]:
    return all_rows(receiver), receiver.payload(100)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


@given(st.lists(st.one_of(st.binary(max_size=20), st.just(b"\0a"))), st.binary(max_size=9), st.integers(0, 3))
def test_the_kernel_finds_what_a_plain_walk_finds(payloads: list[bytes], tail: bytes, start: int) -> None:
    data = bytes(start) + packets(payloads) + tail
    array = np.frombuffer(data + b"\xee", np.uint8)
    for end in range(start, len(data) + 1):
        assert whole_rows(address(array), start, end) == plain_rows(data, start, end)


@given(st.sampled_from(WAYS), ROWS, st.lists(st.integers(0, 1 << 20), max_size=8), st.integers(0, 30))
def test_rows_in_any_pieces(way: Way, rows: list[bytes], places: list[int], early: int) -> None:
    said = packets([*rows, EOF, b"next"])
    with received(way, early=said[:early]) as (receiver, far):
        far.says(*cut(said[early:], places))
        assert all_rows(receiver) == rows
        assert receiver.payload(100) == EOF
        assert receiver.payload(4) == b"next"
        with pytest.raises(DisconnectedError):
            receiver.payload(100)


@pytest.mark.parametrize("length", [MAX_PIECE - 1, MAX_PIECE, MAX_PIECE + 1, 2 * MAX_PIECE, 20 << 20])
@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_is_longer_than_a_packet(way: Way, length: int) -> None:
    rows = [b"\0first", (b"\0" + bytes(range(256)) * (length // 256 + 1))[:length], b"\0last"]
    assert len(rows[1]) == length
    with received(way) as (receiver, far):
        talking = threading.Thread(target=lambda: far.end.sendall(packets([*rows, EOF])))
        talking.start()
        got = all_rows(receiver)
        assert [len(row) for row in got] == [len(row) for row in rows]
        assert got == rows
        assert receiver.payload(100) == EOF
        talking.join()


@pytest.mark.parametrize("way", WAYS)
def test_many_rows_are_given_out_in_large_stretches(way: Way) -> None:
    row, count = b"\0" + b"r" * 99, 100_000
    with received(way) as (receiver, far):
        talking = threading.Thread(target=lambda: far.end.sendall(pack(row) * count + pack(EOF)))
        talking.start()
        sizes = []
        while (stretch := receiver.rows()) is not None:
            data = stretch.data[stretch.start : stretch.end]
            assert not len(data) % 104
            assert (data.reshape(-1, 104)[:, 4:] == np.frombuffer(row, np.uint8)).all()
            sizes.append(len(data))
        talking.join()
    assert sum(sizes) == 104 * count
    assert len(sizes) <= 104 * count // STRETCH_BYTES + 1


@pytest.mark.parametrize("payload", [b"", b"\xff\x10\x00", b"\x01", b"\xfb"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_row_is_left_for_others_to_read(way: Way, payload: bytes) -> None:
    with received(way) as (receiver, far):
        far.says(packets([b"\0a", payload, b"\0b"]))
        assert all_rows(receiver) == [b"\0a"]
        assert receiver.rows() is None
        if payload:
            assert receiver.payload(100) == payload
        else:
            with pytest.raises(ProtocolError, match="empty packet"):
                receiver.payload(100)


@pytest.mark.parametrize("way", WAYS)
def test_a_packet_of_the_full_length_that_is_no_row(way: Way) -> None:
    with received(way) as (receiver, far):
        talking = threading.Thread(target=lambda: far.end.sendall(pack(b"\xff" * MAX_PIECE)))
        talking.start()
        assert receiver.rows() is None
        with pytest.raises(ProtocolError, match="more than 1000 bytes"):
            receiver.payload(1000)
        talking.join()


@pytest.mark.parametrize("way", WAYS)
def test_payloads_above_what_is_expected_are_refused_before_they_are_there(way: Way) -> None:
    with received(way) as (receiver, far):
        far.says((1001).to_bytes(3, "little") + b"\1", hang_up=False)
        with pytest.raises(ProtocolError, match="more than 1000 bytes"):
            receiver.payload(1000)


@pytest.mark.parametrize("way", WAYS)
def test_rows_without_end_are_refused(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROW_BYTES", MAX_PIECE + 5)
    with received(way) as (receiver, far):
        talking = threading.Thread(target=lambda: far.end.sendall(pack(bytes(MAX_PIECE + 6))))
        talking.start()
        with pytest.raises(ProtocolError, match="a row of more than"):
            all_rows(receiver)
        talking.join()


@given(st.sampled_from(WAYS), st.integers(0, 25))
def test_a_result_that_is_cut_anywhere_is_an_error(way: Way, length: int) -> None:
    said = packets([b"\0a", b"\0bcd", EOF])
    with received(way) as (receiver, far):
        far.says(said[: min(length, len(said) - 1)])
        with pytest.raises(DisconnectedError, match="closed the connection"):
            all_rows_and_end(receiver)


@pytest.mark.parametrize("way", WAYS)
def test_silence_ends_the_connection(way: Way) -> None:
    with received(way, silence_s=0.01) as (receiver, far):
        far.says(packets([b"\0a"]), hang_up=False)
        with pytest.raises(DisconnectedError, match="The server sent nothing"):
            all_rows(receiver)
        with pytest.raises(DisconnectedError, match="The server sent nothing"):
            receiver.send(b"\x0e")


@pytest.mark.parametrize("way", WAYS)
def test_another_thread_interrupts_a_wait_now_or_to_come(way: Way) -> None:
    gone = DisconnectedError("interrupted")
    with received(way) as (receiver, far):
        far.says(packets([b"\0a"]), hang_up=False)
        interrupting = threading.Timer(0.05, lambda: receiver.source.interrupt(gone))
        interrupting.start()
        with pytest.raises(DisconnectedError, match="interrupted"):
            all_rows(receiver)
        interrupting.join()
    with received(way) as (receiver, _far):
        receiver.source.interrupt(gone)
        with pytest.raises(DisconnectedError, match="interrupted"):
            receiver.rows()


@pytest.mark.parametrize("way", WAYS)
def test_what_was_given_out_stays_until_the_next_call(way: Way) -> None:
    with received(way) as (receiver, far):
        far.says(packets([b"\0a", EOF]), packets([b"later"]) * 1000, hang_up=False)
        stretch = receiver.rows()
        assert stretch is not None
        assert stretch.data[stretch.start : stretch.end].tobytes() == packets([b"\0a"])
        assert receiver.payload(10) == EOF
        assert receiver.payload(10) == b"later"
