"""QUERY and its status variables; bodies of real servers unless said otherwise."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, ReplicaError
from replica.protocol.constants import EventType
from replica.protocol.events.decode import QueryEvent
from replica.protocol.events.statement_events import StatusVars, read_status_vars
from replica.protocol.wire import Cursor
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.load import HERE, VERSIONS, decode_file

# 11.8, CREATE TABLE v.t (a INT PRIMARY KEY, b LONGTEXT) CHARSET latin1
CREATE_11_8 = (
    "08000000 a7a6ad05 00 0000 3900"
    "00 00000000 01 0000205400000000 06 03737464 83 05 2100 0008 2300 000a 2d00 0009 3600 000b 3c00 000c"
    "04 000900090009 81 0d00000000000000 00"
) + b"CREATE TABLE v.t (a INT PRIMARY KEY, b LONGTEXT) CHARSET latin1".hex()


def status(hexadecimal: str) -> StatusVars:
    return read_status_vars(Cursor(bytes.fromhex(hexadecimal)))


def test_query_with_character_set_collations() -> None:
    event = decode_body(QueryEvent, EventType.QUERY, CREATE_11_8)
    assert event.thread_id == 8
    assert (event.error, event.database) == (0, "")
    assert event.query == b"CREATE TABLE v.t (a INT PRIMARY KEY, b LONGTEXT) CHARSET latin1"
    assert event.status == StatusVars(
        flags2=0,
        sql_mode=0x54200000,
        catalog="std",
        charset=(2304, 2304, 2304),
        character_set_collations=((33, 2048), (35, 2560), (45, 2304), (54, 2816), (60, 3072)),
        xid=13,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_trigger_is_logged_with_its_invoker_and_the_time(version: str) -> None:
    binlog = (HERE / version / "minimal_image.binlog").read_bytes()
    (event,) = [e for _, e in decode_file(binlog) if isinstance(e, QueryEvent) and b"TRIGGER one_update" in e.query]
    assert event.status.invoker == ("root", "%")
    assert event.database == "v"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compressed_query_is_inflated(version: str) -> None:
    binlog = (HERE / version / "compression.binlog").read_bytes()
    (event,) = [e for _, e in decode_file(binlog) if isinstance(e, QueryEvent) and e.compressed]
    assert event.query == b"CREATE TABLE v.c (a INT COMMENT '" + b"long " * 100 + b"')"


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        ("", StatusVars()),
        ("00 01000000 01 0200000000000000", StatusVars(flags2=1, sql_mode=2)),
        ("02 03 737464 00", StatusVars(catalog="std")),
        ("03 0a00 0500", StatusVars(auto_increment=(10, 5))),
        ("05 06 2b30353a3330", StatusVars(time_zone="+05:30")),
        ("07 6f00 08 0800 09 0300000000000000 0a 05000000", StatusVars(
            lc_time_names=111, charset_database=8, table_map_for_update=3, master_data_written=5)),
        ("0b 04 726f6f74 01 25", StatusVars(invoker=("root", "%"))),
        ("0c 02 6100 626300", StatusVars(updated_db_names=(b"a", b"bc"))),
        ("0c fe", StatusVars(updated_db_names=())),
        ("0d 010203", StatusVars(microseconds=0x030201)),
        ("80 40e201", StatusVars(microseconds=123456)),
        ("10 01 11 0500000000000000 12 ff00 13 01 14 01", StatusVars(
            explicit_defaults=1, xid=5, default_collation_for_utf8mb4=255, sql_require_primary_key=1,
            default_table_encryption=1)),
        ("82 02", StatusVars(gtid_flags_extra=2)),
        ("82 04 1900000000000000 81 0700000000000000", StatusVars(
            gtid_flags_extra=4, start_alter_seq_no=25, xid=7)),
        ("07 6f00 ff 00000000", StatusVars(lc_time_names=111)),
        ("07 6f00 7f 00000000", StatusVars(lc_time_names=111, unknown=127)),
    ],
)  # fmt: skip
def test_status_variables(encoded: str, expected: StatusVars) -> None:
    assert status(encoded) == expected


@pytest.mark.parametrize(
    "cut", ["00 010000", "02 03 737464", "05 06 2b30", "0c 02 6100 62", "82 04 19", "83 02 01000200"]
)
def test_cut_status_variables(cut: str) -> None:
    with pytest.raises(ProtocolError):
        status(cut)


def test_the_length_of_the_block_is_binding() -> None:
    # By hand: a block of three bytes whose variable needs five
    with pytest.raises(ProtocolError):
        decode_body(QueryEvent, EventType.QUERY, "08000000 00000000 00 0000 0300 00 0000 000000" + "00" * 20)


def test_damaged_compression() -> None:
    with pytest.raises(ReplicaError):
        decode_body(QueryEvent, EventType.QUERY_COMPRESSED, "08000000 00000000 00 0000 0000 00" + "81 05 00")
