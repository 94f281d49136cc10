"""The semi-sync header and acknowledgement, by the byte and against a primary that waits for one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import ProtocolError
from replica.protocol.events.decode import RotateEvent, decode, parse_header
from replica.protocol.packets.packets import PacketSplitter, com_binlog_dump, pack
from replica.semisync.frame import ack_packet, strip
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.vectors.load import STREAMS, name_of

if TYPE_CHECKING:
    from pathlib import Path

MASTER_TIMEOUT_MS = 60_000
"""Far above the time any test takes: a commit that returns was acknowledged, not timed out."""


def test_strip() -> None:
    assert strip(memoryview(b"\xef\x00event")) == (b"event", False)
    assert strip(memoryview(b"\xef\x01event")) == (b"event", True)


@pytest.mark.parametrize("content", [b"", b"\xef", b"\x00\x00event"])
def test_an_event_without_the_header(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="semi-sync header"):
        strip(memoryview(content))


def test_ack_packet_is_one_whole_packet_with_sequence_id_0() -> None:
    packet = ack_packet("bin.000001", (5 << 30) + 7)
    assert packet.hex(" ", 1).startswith("13 00 00 00 ef 07 00 00 40 01 00 00 00")
    assert packet[13:] == b"bin.000001"
    assert list(PacketSplitter().feed(packet)) == [packet[4:]]


@pytest.mark.parametrize("file", ["", "./bin.000001", "/data/bin.000001", "bin\0", "b" * 513])
def test_names_the_primary_would_misread(file: str) -> None:
    with pytest.raises(ProtocolError, match="not the base name"):
        ack_packet(file, 4)


@pytest.mark.parametrize("path", [path for path in STREAMS if ".semisync" in path.name], ids=name_of)
def test_every_event_of_a_semi_sync_dump_has_the_header(path: Path) -> None:
    plain = path.with_name(path.name.replace(".semisync", "")).read_bytes()
    wanted = [bytes(payload[1:]) for payload in PacketSplitter().feed(plain)]
    payloads = [payload[1:] for payload in PacketSplitter().feed(path.read_bytes())]
    assert [bytes(strip(payload)[0]) for payload in payloads[:-1]] == wanted[:-1]
    assert payloads[-1] == wanted[-1], "the EOF packet has no such header"


@pytest.mark.server
def test_a_waiting_commit_returns_when_its_event_is_acknowledged(server_version: str) -> None:
    options = ("--rpl-semi-sync-master-enabled=1", f"--rpl-semi-sync-master-timeout={MASTER_TIMEOUT_MS}")
    with MariaDb(server_version, *options) as server, server.connect() as replica:
        with replica.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = 'CRC32'")
            cursor.execute("SET @mariadb_slave_capability = 4")
            cursor.execute("SET @slave_connect_state = ''")
            cursor.execute("SET @rpl_semi_sync_slave = 1")
        replica._sock.sendall(pack(com_binlog_dump(77)))
        wait_until(lambda: status(server, "clients") == 1, "the primary counts us as a semi-sync replica")
        commit = threading.Thread(target=server.sql, args=("CREATE DATABASE semi_sync",))
        commit.start()
        file, splitter, acknowledged = "", PacketSplitter(), False
        while not acknowledged:
            for payload in splitter.feed(replica._rfile.read1(1 << 16)):
                assert payload[0] == 0
                event, ack_wanted = strip(payload[1:])
                header = parse_header(event)
                if header.event_type == 4:
                    rotate = decode(event)
                    assert isinstance(rotate, RotateEvent)
                    file = rotate.file
                if ack_wanted:
                    # The event leaves a moment before its session counts as waiting.
                    wait_until(lambda: status(server, "wait_sessions") == 1, "the commit waits for us")
                    replica._sock.sendall(ack_packet(file, header.log_pos))
                    acknowledged = True
        commit.join(30)
        assert not commit.is_alive()
        assert status(server, "yes_tx") == 1
        assert status(server, "no_tx") == 0
        replica._sock.shutdown(2)


def status(server: MariaDb, name: str) -> int:
    (row,) = server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")
    return int(row[1])
