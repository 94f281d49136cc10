from __future__ import annotations

import contextlib

import pytest

from replica.errors import PrerequisiteError, ServerError
from replica.handshake.registration import Registered, Registration, Send, register
from replica.protocol.constants import ChecksumAlgorithm
from replica.protocol.gtid import GtidPosition
from tests.unit.handshake.steps import converse

CHECKSUM = {"SELECT @master_binlog_checksum": [("CRC32",)]}
SEMI_SYNC = "SHOW GLOBAL VARIABLES WHERE"


def wanted(**options: object) -> Registration:
    return Registration(server_id=4711, position=GtidPosition.parse("1-2-9,0-1-42"), **options)  # type: ignore[arg-type]


def test_the_whole_conversation_in_order() -> None:
    said, registered = converse(register(wanted()), CHECKSUM)
    assert said == [
        "SET SESSION net_write_timeout = 3600",
        "SET @master_heartbeat_period = 10000000000",  # nanoseconds
        "SET @master_binlog_checksum = @@global.binlog_checksum",
        "SELECT @master_binlog_checksum",
        "SET @mariadb_slave_capability = 4",
        "SET @slave_connect_state = '0-1-42,1-2-9'",  # sorted, no blanks: the server refuses '0-1-42, 1-2-9'
        "SET @slave_gtid_strict_mode = 1",
        "SET @slave_gtid_ignore_duplicates = 0",
        # COM_REGISTER_SLAVE: id, three empty texts, port, rank, master id
        bytes.fromhex("15 67120000 00 00 00 0000 00000000 00000000"),
        # COM_BINLOG_DUMP: position 4, no flags, id, no file: GTID mode ignores file and position
        bytes.fromhex("12 04000000 0000 67120000"),
    ]
    assert registered == Registered(ChecksumAlgorithm.CRC32, semi_sync=False, semi_sync_enabled=False)


def test_only_the_dump_has_no_reply() -> None:
    steps, sends = register(wanted()), []
    step = next(steps)
    with contextlib.suppress(StopIteration):
        while True:
            if isinstance(step, Send):
                sends.append(step.replies)
            step = steps.send([("CRC32",)])
    assert sends == [True, False]


@pytest.mark.parametrize(
    ("announced", "expected"),
    [("NONE", ChecksumAlgorithm.NONE), ("CRC32", ChecksumAlgorithm.CRC32), (None, ChecksumAlgorithm.NONE)],
)
def test_the_checksum_is_what_the_server_announced(announced: str | None, expected: ChecksumAlgorithm) -> None:
    _, registered = converse(register(wanted()), {"SELECT @master_binlog_checksum": [(announced,)]})
    assert registered.checksum == expected


def test_annotate_sets_flag_2() -> None:
    said, _ = converse(register(wanted(annotate=True)), CHECKSUM)
    assert said[-1] == bytes.fromhex("12 04000000 0200 67120000")


def test_the_name_for_show_replica_hosts_is_sent() -> None:
    said, _ = converse(register(wanted(report_host="spark-1")), CHECKSUM)
    assert said[-2] == bytes.fromhex("15 67120000 07") + b"spark-1" + bytes(12)


def test_an_empty_position_is_announced_as_empty() -> None:
    said, _ = converse(register(Registration(server_id=1, position=GtidPosition())), CHECKSUM)
    assert "SET @slave_connect_state = ''" in said


def test_semi_sync_is_asked_for_last_and_only_where_the_server_knows_it() -> None:
    for value in ("OFF", "ON"):
        known = {**CHECKSUM, SEMI_SYNC: [("rpl_semi_sync_master_enabled", value), ("binlog_storage_engine", "")]}
        said, registered = converse(register(wanted(semi_sync=True)), known)
        assert said[-2] == "SET @rpl_semi_sync_slave = 1"
        assert registered.semi_sync
        assert registered.semi_sync_enabled == (value == "ON")
    with pytest.raises(PrerequisiteError, match="no semi-synchronous"):
        converse(register(wanted(semi_sync=True)), CHECKSUM)


def test_semi_sync_is_refused_where_the_binlog_is_in_a_storage_engine() -> None:
    rows = [("rpl_semi_sync_master_enabled", "ON"), ("binlog_storage_engine", "innodb")]
    with pytest.raises(PrerequisiteError, match="storage engine innodb") as caught:
        converse(register(wanted(semi_sync=True)), {**CHECKSUM, SEMI_SYNC: rows})
    assert "binlog_storage_engine" in caught.value.hint
    assert not converse(register(wanted()), CHECKSUM)[1].semi_sync, "without it nothing is asked"


def test_an_error_packet_ends_the_conversation() -> None:
    denied = ServerError("denied", code=1045)
    with pytest.raises(ServerError, match="denied"):
        converse(register(wanted()), {**CHECKSUM, "15": denied})
