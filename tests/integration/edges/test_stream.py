"""Edge cases 55-71: the stream of a dump. What is proven elsewhere carries its number there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, PositionLostError, ReplicaError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.decode import decode
from replica.protocol.events.file_events import HeartbeatEvent, RotateEvent
from replica.protocol.events.transaction_events import GtidEvent, GtidListEvent
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets.packets import PacketSplitter, parse_reply
from replica.protocol.rows.rows_event import RowsEvent
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.raw_dump import REGISTERED, RawDump
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import LONG_HEARTBEAT_S
from tests.integration.edges.log import log_of
from tests.integration.edges.streams import WAIT_S, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.server


@pytest.mark.edge(56)
def test_hundreds_of_packets_a_byte_at_a_time(server: MariaDb) -> None:
    log_of(server, *(f"INSERT INTO a VALUES ({i})" for i in range(120)), before=["CREATE TABLE a (id INT)"])
    with RawDump(server, *REGISTERED) as dump:
        raw = bytearray()
        while chunk := dump.connection._rfile.read1(1 << 16):
            raw += chunk
    whole = [bytes(payload) for payload in PacketSplitter().feed(raw)]
    assert len(whole) > 256, "the sequence id of a packet has wrapped"
    splitter, single = PacketSplitter(), []
    for byte in raw:
        single += [bytes(payload) for payload in splitter.feed(bytes([byte]))]
    assert single == whole
    assert not splitter.in_payload


@pytest.mark.edge(57)
def test_files_rotated_in_mid_stream(server: MariaDb, tmp_path: Path) -> None:
    start = server.gtid_binlog_pos()
    log_of(server, "INSERT INTO a VALUES (1)", before=["CREATE TABLE a (id INT)"])
    server.sql("FLUSH BINARY LOGS", "INSERT INTO edge.a VALUES (2)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    server.sql("INSERT INTO edge.a VALUES (3)")
    with RawDump(server, *REGISTERED[:2], f"SET @slave_connect_state = '{start}'") as dump:
        kinds = [event.header.event_type for event in dump.events() if event.header.event_type != EventType.ROTATE]
    assert kinds.count(EventType.FORMAT_DESCRIPTION) >= 4
    rows = receive(server, start, tmp_path).changes("a", with_catalog=True)
    assert [(change.after or {})["id"] for change in rows] == [1, 2, 3]


class Case:
    """A start position and how it ends; in the words of the error, or in how many groups follow."""

    def __init__(self, position: str, expected: type[ReplicaError] | int, text: str = "") -> None:
        self.position = position
        self.expected = expected
        self.text = text


def error_of(replica: EmbeddedReplica, position: str, kind: type[ReplicaError], text: str) -> ReplicaError:
    """What starting there ends with: at once, or when the server has looked."""

    def run() -> None:
        replica.start(GtidPosition.parse(position))
        replica.wait_for(GtidPosition.parse("0-1-999999999"), WAIT_S)

    with pytest.raises(kind, match=text) as caught:
        run()
    return caught.value


@pytest.mark.edge(59)
def test_every_kind_of_start_position(make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path) -> None:
    server = make_server(server_version)
    insert = "INSERT INTO s.t VALUES (1)"
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (a INT)", insert, "FLUSH BINARY LOGS")  # 0-1-1 to 0-1-3
    server.sql(insert, insert, "SET gtid_domain_id = 5", insert, "FLUSH BINARY LOGS")  # 0-1-4, 0-1-5, 5-1-1
    server.sql(insert)  # 0-1-6
    server.purge_binlogs(server.binlogs()[1])
    cases = [
        Case("", PositionLostError, "purged"),
        Case("0-1-2", PositionLostError, "purged"),
        Case("0-1-3", 4),  # the last one before the oldest file: everything of it is still there
        Case("0-1-4", 3),
        Case("0-1-5,5-1-1", 1),
        Case("0-1-5", 2),  # domain 5 from its first group
        Case("0-1-6,5-1-1", 0),
        Case("0-1-6,5-1-1,9-9-9", PositionLostError, "does not have 9-9-9"),  # the server alone would not mind
        Case("0-1-999", PositionLostError, "does not have 0-1-999"),
        Case("0-7-4", PositionLostError, "diverged"),
    ]
    for number, case in enumerate(cases):
        directory = tmp_path / str(number)
        directory.mkdir()
        replica = EmbeddedReplica(replica_config(server), directory)
        try:
            if isinstance(case.expected, int):
                replica.start(GtidPosition.parse(case.position))
                assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S), case.position
                assert len(relay_gtids(server, directory)) == case.expected, case.position
            else:
                assert error_of(replica, case.position, case.expected, case.text).hint
        finally:
            replica.close()
    for malformed in ("0-1", "0-1-x", "0-1-4,0-1-5", "a"):
        with pytest.raises(ConfigError):
            GtidPosition.parse(malformed)


@pytest.mark.edge(60)
@pytest.mark.parametrize("strict", [True, False])
def test_a_position_in_a_hole(server: MariaDb, tmp_path: Path, *, strict: bool) -> None:
    log_of(server, "DO 1", before=["CREATE TABLE a (id INT)"])
    last = int(server.gtid_binlog_pos().split(",")[0].split("-")[2])
    server.sql(f"SET gtid_seq_no = {last + 100}", "INSERT INTO edge.a VALUES (1)")
    replica = EmbeddedReplica(replica_config(server, gtid_strict_mode=strict), tmp_path)
    try:
        if strict:
            error = error_of(replica, f"0-1-{last + 50}", PositionLostError, "missing the GTID")
            assert isinstance(error, PositionLostError)
            assert error.code == 1236
        else:
            replica.start(GtidPosition.parse(f"0-1-{last + 50}"))
            assert replica.wait_for(GtidPosition.parse(f"0-1-{last + 100}"), WAIT_S)
            assert len(relay_gtids(server, tmp_path)) == 1
    finally:
        replica.close()


@pytest.mark.edge(61)
@pytest.mark.parametrize(
    ("until", "groups", "reached"), [(2, 2, True), (50, 3, True), (None, 0, True), (999, 4, False)]
)
def test_until(server: MariaDb, until: int | None, groups: int, *, reached: bool) -> None:
    log_of(server, "DO 1", before=["CREATE TABLE a (id INT)"])
    last = int(server.gtid_binlog_pos().split(",")[0].split("-")[2])
    server.sql(*["INSERT INTO edge.a VALUES (1)"] * 3)
    server.sql(f"SET gtid_seq_no = {last + 100}", "INSERT INTO edge.a VALUES (2)")
    wanted = "" if until is None else f"0-1-{last + until}"
    statements = (*REGISTERED[:2], f"SET @slave_connect_state = '0-1-{last}'", f"SET @slave_until_gtid = '{wanted}'")
    with RawDump(server, *statements) as dump:
        events = list(dump.decoded())
    assert sum(isinstance(event, GtidEvent) for event in events) == groups
    last_event = events[-1]
    assert (isinstance(last_event, GtidListEvent) and last_event.until_reached) is reached
    assert dump.end[:1] == b"\xfe", "the server says goodbye"


@pytest.mark.edge(62)
@pytest.mark.parametrize("capability", [None, 1, 2, 3])
def test_old_capabilities_bring_dummy_events(server: MariaDb, capability: int | None) -> None:
    log_of(server, "INSERT INTO a VALUES (1)", before=["CREATE TABLE a (id INT)"])
    statements = [REGISTERED[0]]
    if capability is not None:
        statements.append(f"SET @mariadb_slave_capability = {capability}")
    # Without GTIDs a dump begins at the file that it names, the oldest if it names none.
    with RawDump(server, *statements) as dump:
        events = list(dump.decoded())
    assert dump.end[:1] == b"\xfe", dump.end
    assert any(isinstance(event, RowsEvent) for event in events)
    assert not any(isinstance(event, GtidEvent) for event in events), "this replica was told of no GTIDs"


@pytest.mark.edge(63)
def test_checksums_that_were_not_announced(server: MariaDb) -> None:
    with RawDump(server, *REGISTERED[1:]) as dump:
        events = list(dump.events())
    assert [event.header.event_type for event in events] == [EventType.ROTATE]
    error = parse_reply(dump.end)
    assert getattr(error, "code", None) == 1236
    with RawDump(server, "SET @master_binlog_checksum = 'NONE'", *REGISTERED[1:]) as dump:
        first, second, *rest = dump.events()
    assert isinstance(decode(first.data), RotateEvent), "without a checksum"
    description = decode(second.data)
    for event in rest:
        decode(event.data, description, checksum=ChecksumAlgorithm.CRC32)  # type: ignore[arg-type]


@pytest.mark.edge(64)
@pytest.mark.parametrize("size", [100, 255, 256, 70_000, 17_000_000])
def test_compressed_events(server: MariaDb, size: int, tmp_path: Path) -> None:
    start = server.gtid_binlog_pos()
    server.sql("SET GLOBAL max_allowed_packet = 268435456")
    log = log_of(
        server,
        "SET GLOBAL log_bin_compress = ON",
        "CREATE TABLE a (id INT, b LONGTEXT COMMENT '" + "x" * 300 + "')",
        f"INSERT INTO a VALUES (1, RPAD('', {size}, 'ab')), (2, NULL)",
        "INSERT INTO a VALUES (3, 'short')",
        f"UPDATE a SET b = RPAD('', {size}, 'cd') WHERE id = 1",
        "DELETE FROM a WHERE id = 1",
        "SET GLOBAL log_bin_compress = OFF",
    )
    kinds = {event.header.event_type for event in log.events()}
    assert EventType.QUERY_COMPRESSED in kinds
    # The row has a few bytes more than its text; rows are compressed from 256 bytes on, by default.
    assert (EventType.WRITE_ROWS_COMPRESSED_V1 in kinds) == (size >= 255)
    text, other = (("ab" * size)[:size], ("cd" * size)[:size])
    expected = [
        ("insert", None, {"id": 1, "b": text}),
        ("insert", None, {"id": 2, "b": None}),
        ("insert", None, {"id": 3, "b": "short"}),
        ("update", {"id": 1, "b": text}, {"id": 1, "b": other}),
        ("delete", {"id": 1, "b": other}, None),
    ]
    # The plain decoder reads as much in test_compressed_log.py.
    found = [(change.op, change.before, change.after) for change in log.changes("a", twin=size < 1 << 24)]
    assert found == expected
    received = receive(server, start, tmp_path).changes("a")
    assert [(change.op, change.before, change.after) for change in received] == expected


@pytest.fixture(scope="module")
def encrypted(server_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("1;770A8A65DA156D24EE2A093277530142\n", encoding="ascii")
    with MariaDb(
        server_version,
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={keys}",
        "--encrypt-binlog=ON",
    ) as server:
        yield server


@pytest.mark.edge(65)
def test_an_encrypting_server_sends_plain_events(encrypted: MariaDb, tmp_path: Path) -> None:
    start = encrypted.gtid_binlog_pos()
    encrypted.sql("CREATE DATABASE edge", "CREATE TABLE edge.a (id INT)", "INSERT INTO edge.a VALUES (1), (2)")
    stored = (encrypted.datadir / encrypted.binlogs()[-1]).read_bytes()
    assert b"CREATE TABLE" not in stored
    received = receive(encrypted, start, tmp_path)
    assert [change.after for change in received.changes("a", with_catalog=True)] == [{"id": 1}, {"id": 2}]


@pytest.mark.edge(66)
def test_heartbeats_stand_between_groups_and_name_the_file(server: MariaDb) -> None:
    position = server.gtid_binlog_pos()
    statements = (
        *REGISTERED[:2],
        f"SET @slave_connect_state = '{position}'",
        "SET @master_heartbeat_period = 20000000",
    )
    deadline = time.monotonic() + WAIT_S
    with RawDump(server, *statements, flags=0) as dump:
        description, file, beats = None, "", []
        for arrived in dump.events():
            event = decode(arrived.data, description)
            if arrived.header.event_type == EventType.FORMAT_DESCRIPTION:
                description = event  # type: ignore[assignment]
            if isinstance(event, RotateEvent):
                file = event.file
            if isinstance(event, HeartbeatEvent):
                beats.append((event.file, file))
                if len(beats) == 3:
                    server.sql("FLUSH BINARY LOGS")
                if event.file != beats[0][0]:
                    break
            assert time.monotonic() < deadline, "after the rotation it names the new file"
    assert all(named == current for named, current in beats)
    assert len(beats) > 3


@pytest.mark.edge(69)
def test_a_slow_consumer_is_no_disconnect(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("SET GLOBAL net_write_timeout = 1")
    any_server.sql("CREATE OR REPLACE DATABASE slow", "CREATE TABLE slow.t (b LONGBLOB)")
    start = any_server.gtid_binlog_pos()
    limits = {"relay_max_bytes": 8 << 20, "relay_max_file_bytes": 1 << 20}
    replica = EmbeddedReplica(replica_config(any_server, heartbeat_s=LONG_HEARTBEAT_S, **limits), tmp_path)

    def all_read() -> bool:
        replica.log.purge_before(replica.head().location)
        return replica.wait_for(target, 0.05)

    try:
        replica.start(GtidPosition.parse(start))
        any_server.sql(*["INSERT INTO slow.t VALUES (REPEAT('s', 1000000))"] * 40)
        target = GtidPosition.parse(any_server.gtid_binlog_pos())
        wait_until(lambda: replica.progress.pause == "relay log full", "the relay log is full, nothing is read")
        # Somebody who reads nothing either, since later than us, and does not know better.
        with RawDump(any_server, *REGISTERED[:2], f"SET @slave_connect_state = '{start}'", flags=0) as other:
            his = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {other.connection.thread_id()}"
            wait_until(lambda: any_server.value(his) == 0, "the server waits for him no longer")
        wait_until(all_read, "room is made, and everything comes")
        assert replica.progress.connections == 1
        assert replica.progress.thread_id in any_server.dump_threads()
    finally:
        replica.close()
        any_server.sql("SET GLOBAL net_write_timeout = 60")
