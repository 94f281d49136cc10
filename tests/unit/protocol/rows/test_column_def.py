"""Type codes with their metadata: every declaration a server writes, and what no server writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError, UnsupportedColumnError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import ColumnDef, read_column_type
from replica.protocol.wire import Cursor

T = ColumnType


def column(code: int, metadata: str) -> ColumnDef:
    block = Cursor(bytes.fromhex(metadata))
    found = read_column_type(code, block, 0)
    assert not block
    return found


# declaration, type code, metadata, resolved type, length, other fields; from MariaDB 10.11 (VECTOR and uca1400: 11.8)
DECLARATIONS = [
    ("TINYINT", 1, "", T.TINY, 1, {}),
    ("SMALLINT", 2, "", T.SHORT, 2, {}),
    ("MEDIUMINT", 9, "", T.INT24, 3, {}),
    ("INT", 3, "", T.LONG, 4, {}),
    ("BIGINT", 8, "", T.LONGLONG, 8, {}),
    ("FLOAT", 4, "04", T.FLOAT, 4, {}),
    ("DOUBLE", 5, "08", T.DOUBLE, 8, {}),
    ("DECIMAL(10,4)", 246, "0a04", T.NEWDECIMAL, 0, {"precision": 10, "scale": 4}),
    ("DECIMAL(5,0)", 246, "0500", T.NEWDECIMAL, 0, {"precision": 5}),
    ("DECIMAL(4,4)", 246, "0404", T.NEWDECIMAL, 0, {"precision": 4, "scale": 4}),
    ("DECIMAL(65,30)", 246, "411e", T.NEWDECIMAL, 0, {"precision": 65, "scale": 30}),
    ("BIT(1)", 16, "0100", T.BIT, 1, {}),
    ("BIT(10)", 16, "0201", T.BIT, 10, {}),
    ("BIT(64)", 16, "0008", T.BIT, 64, {}),
    ("YEAR", 13, "", T.YEAR, 1, {}),
    ("DATE", 10, "", T.DATE, 3, {}),
    ("TIME", 19, "00", T.TIME2, 3, {}),
    ("TIME(1)", 19, "01", T.TIME2, 4, {"fsp": 1}),
    ("TIME(6)", 19, "06", T.TIME2, 6, {"fsp": 6}),
    ("DATETIME", 18, "00", T.DATETIME2, 5, {}),
    ("DATETIME(3)", 18, "03", T.DATETIME2, 7, {"fsp": 3}),
    ("TIMESTAMP(2)", 17, "02", T.TIMESTAMP2, 5, {"fsp": 2}),
    ("TIMESTAMP(6)", 17, "06", T.TIMESTAMP2, 7, {"fsp": 6}),
    ("TIME, mysql56_temporal_format=OFF", 11, "", T.TIME, 3, {}),
    ("DATETIME, mysql56_temporal_format=OFF", 12, "", T.DATETIME, 8, {}),
    ("TIMESTAMP, mysql56_temporal_format=OFF", 7, "", T.TIMESTAMP, 4, {}),
    ("ENUM('a','b','c')", 254, "f701", T.ENUM, 1, {}),
    ("ENUM of 300 labels", 254, "f702", T.ENUM, 2, {}),
    ("SET of 9", 254, "f802", T.SET, 2, {}),
    ("SET of 17", 254, "f803", T.SET, 3, {}),
    ("SET of 33", 254, "f808", T.SET, 8, {}),
    ("CHAR(5) CHARSET latin1", 254, "fe05", T.STRING, 5, {}),
    ("CHAR(63) CHARSET utf8mb4", 254, "fefc", T.STRING, 252, {}),
    ("CHAR(64) CHARSET utf8mb4", 254, "ee00", T.STRING, 256, {}),
    ("CHAR(100) CHARSET utf8mb4", 254, "ee90", T.STRING, 400, {}),
    ("CHAR(255) CHARSET utf8mb4", 254, "cefc", T.STRING, 1020, {}),
    ("BINARY(5)", 254, "fe05", T.STRING, 5, {}),
    ("BINARY(255)", 254, "feff", T.STRING, 255, {}),
    ("UUID", 254, "fe10", T.STRING, 16, {}),
    ("INET4", 254, "fe04", T.STRING, 4, {}),
    ("VARCHAR(10) CHARSET latin1", 15, "0a00", T.VARCHAR, 10, {}),
    ("VARCHAR(64) CHARSET utf8mb4", 15, "0001", T.VARCHAR, 256, {}),
    ("VARBINARY(300)", 15, "2c01", T.VARCHAR, 300, {}),
    ("VECTOR(3)", 15, "0c00", T.VARCHAR, 12, {}),
    ("TINYBLOB", 252, "01", T.BLOB, 1, {}),
    ("BLOB", 252, "02", T.BLOB, 2, {}),
    ("MEDIUMTEXT", 252, "03", T.BLOB, 3, {}),
    ("LONGBLOB", 252, "04", T.BLOB, 4, {}),
    ("POINT", 255, "04", T.GEOMETRY, 4, {}),
    ("BLOB COMPRESSED", 140, "02", T.BLOB_COMPRESSED, 2, {}),
    ("VARCHAR(500) COMPRESSED", 141, "f501", T.VARCHAR_COMPRESSED, 501, {}),
    ("JSON of MySQL", 245, "04", T.JSON, 4, {}),
    ("VECTOR of MySQL", 242, "04", T.VECTOR, 4, {}),
]


@pytest.mark.parametrize(
    ("code", "metadata", "kind", "length", "others"), [d[1:] for d in DECLARATIONS], ids=[d[0] for d in DECLARATIONS]
)
def test_declarations(code: int, metadata: str, kind: ColumnType, length: int, others: dict[str, int]) -> None:
    found = column(code, metadata)
    assert found == ColumnDef(type=kind, metadata=bytes.fromhex(metadata), length=length, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 1, 255, 256, 511, 512, 767, 768, 1023])
def test_hidden_bits_of_string_lengths(length: int) -> None:
    hidden = (length >> 8 & 3) << 4 ^ 0x30
    assert column(254, bytes((0xCE | hidden, length & 0xFF)).hex()).length == length


@pytest.mark.parametrize("code", [0, 6, 14, 20, 100, 243, 244, 247, 248, 249, 250, 251, 253])
def test_codes_no_server_writes_are_never_guessed(code: int) -> None:
    with pytest.raises(UnsupportedColumnError, match=f"column 1 has the unknown type code {code}"):
        column(code, "0000")


@pytest.mark.parametrize(
    ("code", "metadata"),
    [
        (4, "08"), (5, "04"), (246, "0000"), (246, "4200"), (246, "0506"), (16, "0800"), (16, "0000"), (16, "0108"),
        (17, "07"), (252, "00"), (252, "05"), (255, "09"), (254, "f703"), (254, "f806"), (254, "fd05"), (254, "0105"),
    ],
)  # fmt: skip
def test_impossible_metadata(code: int, metadata: str) -> None:
    with pytest.raises(ProtocolError, match="column 1"):
        column(code, metadata)


@given(st.integers(0, 255), st.binary(max_size=3))
def test_garbage(code: int, metadata: bytes) -> None:
    try:
        found = read_column_type(code, Cursor(metadata), 4)
    except ReplicaError:
        return
    assert found.length >= 0
