"""Command payloads, byte for byte; the server's acceptance of them is tested where a stream is made from them."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from replica.protocol.constants import DumpFlag
from replica.protocol.packets.packets import com_binlog_dump, com_register_slave


def test_com_register_slave() -> None:
    payload = com_register_slave(0x01020304, host="h", user="us", password="", port=3306, master_id=9)
    assert payload.hex(" ") == "15 04 03 02 01 01 68 02 75 73 00 ea 0c 00 00 00 00 09 00 00 00"


def test_com_register_slave_with_defaults() -> None:
    assert com_register_slave(7).hex() == "15" + "07000000" + "000000" + "0000" + "00000000" + "00000000"


def test_com_register_slave_refuses_long_texts() -> None:
    with pytest.raises(ConfigError, match="host to register has 61 bytes"):
        com_register_slave(7, host="h" * 61)


def test_com_binlog_dump_in_gtid_mode() -> None:
    assert com_binlog_dump(7, flags=DumpFlag.SEND_ANNOTATE_ROWS).hex() == "12" + "04000000" + "0200" + "07000000"


def test_com_binlog_dump_by_file_and_position() -> None:
    payload = com_binlog_dump(7, flags=DumpFlag.NON_BLOCK, file="bin.000001", position=256)
    assert payload == bytes.fromhex("12 00010000 0100 07000000") + b"bin.000001"
