"""Whatever way bytes are cut, the same payloads come out; replies are told apart by their first byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.constants import ChecksumAlgorithm, DumpFlag
from replica.protocol.header import strip
from replica.protocol.packets import packets
from replica.protocol.packets.packets import (
    MAX_MESSAGE,
    EofPacket,
    ErrPacket,
    OkPacket,
    PacketSplitter,
    com_binlog_dump,
    pack,
    parse_reply,
)
from tests.fixtures.mariadb import MariaDb
from tests.vectors.load import STREAMS, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BIG = 0xFFFFFF


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def payloads(chunks: Iterator[bytes] | list[bytes], splitter: PacketSplitter | None = None) -> list[bytes]:
    splitter = splitter or PacketSplitter()
    found = [bytes(payload) for chunk in chunks for payload in splitter.feed(chunk)]
    assert not splitter.in_payload
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """The continuation rule at a packet length that makes payloads of many packets cheap."""
    monkeypatch.setattr(packets, "MAX_PIECE", 5)
    return 5


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (0, [0]),
        (BIG - 1, [BIG - 1]),
        (BIG, [BIG, 0]),
        (BIG + 1, [BIG, 1]),
        (2 * BIG, [BIG, BIG, 0]),
    ],
)
def test_payloads_around_the_packet_limit(size: int, lengths: list[int]) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    data = pack(payload, 255)
    at, found = 0, []
    for number in range(len(lengths)):
        found.append(int.from_bytes(data[at : at + 3], "little"))
        assert data[at + 3] == (255 + number) % 256
        at += 4 + found[-1]
    assert (found, at) == (lengths, len(data))
    after = pack(b"after", 7)
    for chunk_bytes in (1 << 16, len(data) + len(after), BIG + 4):
        assert payloads(pieces(data + after, chunk_bytes)) == [payload, b"after"]


@given(st.lists(st.binary(max_size=23), max_size=6), st.data())
def test_any_chunking_gives_the_same_payloads(wanted: list[bytes], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packets, "MAX_PIECE", 5)
        stream = b"".join(pack(payload, data.draw(st.integers(0, 255))) for payload in wanted)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
        chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert payloads(chunks) == wanted
        assert payloads(pieces(stream, 1)) == wanted


@pytest.mark.parametrize("path", STREAMS, ids=name_of)
def test_a_servers_stream_one_byte_at_a_time(path: Path) -> None:
    data = path.read_bytes()
    whole = payloads([data])
    assert payloads(pieces(data, 1)) == whole
    assert len(whole) > 40
    assert isinstance(parse_reply(whole[-1]), EofPacket)


def test_sequence_restarts_are_no_concern(small_pieces: int) -> None:
    stream = pack(b"one", 5) + pack(b"two", 1) + pack(b"twelve bytes", 1) + pack(b"", 0)
    assert payloads([stream]) == [b"one", b"two", b"twelve bytes", b""]


def test_payloads_not_taken_are_kept_for_the_next_feed() -> None:
    splitter = PacketSplitter()
    first = splitter.feed(pack(b"a") + pack(b"b"))
    assert bytes(next(first)) == b"a"
    assert splitter.in_payload
    assert [bytes(p) for p in splitter.feed(pack(b"c"))] == [b"b", b"c"]


def test_a_payload_inside_one_chunk_is_not_copied() -> None:
    chunk = bytearray(pack(b"abc"))
    (view,) = PacketSplitter().feed(chunk)
    chunk[4] = ord("X")
    assert bytes(view) == b"Xbc"


@pytest.mark.parametrize("held", [b"\x03", b"\x03\x00\x00\x00", b"\x03\x00\x00\x00ab", pack(b"x" * BIG)[: BIG + 4]])
def test_a_cut_connection_is_noticed(held: bytes) -> None:
    splitter = PacketSplitter()
    assert not list(splitter.feed(held))
    assert splitter.in_payload


def test_a_payload_above_the_limit_is_refused_before_it_is_stored() -> None:
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        list(PacketSplitter(10).feed((11).to_bytes(3, "little") + b"\0"))


def test_the_limit_counts_all_packets_of_a_payload(small_pieces: int) -> None:
    assert payloads([pack(b"x" * 12)], PacketSplitter(12)) == [b"x" * 12]
    with pytest.raises(ProtocolError):
        list(PacketSplitter(12).feed(pack(b"x" * 13)))


@pytest.mark.server
def test_a_server_splits_as_we_do(server_version: str) -> None:
    # A row of one LONGBLOB makes an event of its bytes and 38 more; the status byte makes it 39.
    sizes = [BIG - 1, BIG, BIG + 1, 2 * BIG]
    statements = [f"INSERT INTO big.t VALUES (REPEAT('x', {size - 39}))" for size in sizes]
    with MariaDb(server_version, "--max-allowed-packet=128M") as server, server.connect() as replica:
        create = ("CREATE DATABASE big", "CREATE TABLE big.t (b LONGBLOB) ENGINE=MyISAM")
        server.sql(*create, "SET SESSION binlog_annotate_row_events = 0", *statements)
        with replica.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = 'CRC32'")
            cursor.execute("SET @mariadb_slave_capability = 4")
            cursor.execute("SET @slave_connect_state = ''")
        replica._sock.sendall(pack(com_binlog_dump(77, flags=DumpFlag.NON_BLOCK)))
        chunks = iter(lambda: replica._rfile.read1(1 << 20), b"")
        splitter = PacketSplitter()
        found = []
        for payload in (payload for chunk in chunks for payload in splitter.feed(chunk)):
            if len(payload) > 1 << 20:
                strip(payload[1:], ChecksumAlgorithm.CRC32)
                found.append(len(payload))
        assert found == sizes
        assert not splitter.in_payload


def test_err_packet_of_a_dump() -> None:
    text = "Could not find GTID state requested by slave in any binlog files."
    payload = bytes.fromhex("ff d404 23") + b"HY000" + text.encode()
    assert parse_reply(payload) == ErrPacket(1236, "HY000", text)


def test_the_message_of_an_err_packet_is_cut_at_what_no_server_says() -> None:
    packet = parse_reply(b"\xff\x51\x04#HY000" + b"A" * 200_000)
    assert isinstance(packet, ErrPacket)
    assert packet.message == "A" * MAX_MESSAGE + " ..."


def test_err_packet_without_sqlstate_and_with_foreign_bytes() -> None:
    assert parse_reply(bytes.fromhex("ff1004") + b"Too many connections") == ErrPacket(1040, "", "Too many connections")
    assert parse_reply(bytes.fromhex("ff1004e9")) == ErrPacket(1040, "", "\ufffd")
    assert parse_reply(bytes.fromhex("ff1004")) == ErrPacket(1040, "", "")


def test_eof_packets() -> None:
    assert parse_reply(bytes.fromhex("fe00000200")) == EofPacket(warnings=0, status=2)
    assert parse_reply(b"\xfe") == EofPacket(0, 0)


def test_ok_packet() -> None:
    assert parse_reply(bytes.fromhex("00 01 fce803 0200 0300") + b"info") == OkPacket(1, 1000, 2, 3, b"info")


@pytest.mark.parametrize("payload", ["03", "fe0000000000000000", "fb"])
def test_other_payloads_are_no_replies(payload: str) -> None:
    with pytest.raises(ProtocolError, match="not OK, EOF or ERR"):
        parse_reply(bytes.fromhex(payload))


@given(st.binary(max_size=40))
def test_garbage_is_a_reply_or_a_protocol_error(payload: bytes) -> None:
    try:
        reply = parse_reply(payload)
    except ProtocolError:
        return
    assert isinstance(reply, OkPacket | EofPacket | ErrPacket)
