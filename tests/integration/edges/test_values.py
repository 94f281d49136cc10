"""Edge cases 1-27: values, as every column type logs them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pymysql
import pytest

from replica.errors import UnsupportedColumnError
from replica.protocol.constants import ColumnType
from tests.fixtures.mariadb import MariaDb
from tests.integration.commands.dump_agreement import check_binlogs
from tests.integration.edges.log import log_of, version

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(server_version: str) -> Iterator[MariaDb]:
    """In the end, what the tests have written is what mariadb-binlog -vv reads, row by row and value by value."""
    with MariaDb(server_version) as running:
        yield running
        # Neither can read the fractions of the old format: the tool prints what is no row.
        check_binlogs(running, without=b"digits")


def micro(text: str) -> timedelta:
    """A TIME as SELECT prints it."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    return sign * timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=int((fraction + "000000")[:6])
    )


@pytest.mark.edge(1)
def test_bits(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (b BIT(1), c BIT(10), d BIT(64))",
        "INSERT INTO a VALUES (b'1', b'1000000011', 0x8000000000000001)",
    )
    assert log.inserted("a") == [(1, 515, Decimal(9223372036854775809))]
    assert [column.length for column in log.columns("a")] == [1, 10, 64]


@pytest.mark.edge(2)
@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL"])
def test_signedness_comes_from_the_catalog_or_from_the_stream(server: MariaDb, metadata: str) -> None:
    log = log_of(
        server,
        "INSERT INTO a VALUES (200, -56)",
        before=["CREATE TABLE a (u TINYINT UNSIGNED, s TINYINT)"],
        metadata=metadata,
    )
    assert b"\xfc\xc8\xc8" in log.data
    assert log.inserted("a", with_catalog=True) == [(200, -56)]
    assert [column.unsigned for column in log.columns("a")] == ([None, None] if metadata == "NO_LOG" else [True, False])


@pytest.mark.edge(3)
def test_the_same_three_bytes_are_two_mediumints(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (s MEDIUMINT, u MEDIUMINT UNSIGNED)",
        "INSERT INTO a VALUES (-1, 16777215), (-8388608, 0)",
    )
    assert log.inserted("a") == [(-1, 16777215), (-8388608, 0)]


@pytest.mark.edge(4)
def test_decimals_keep_sign_and_scale(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (a DECIMAL(10,4), b DECIMAL(4,4), c DECIMAL(65,30), d DECIMAL(5,0))",
        "INSERT INTO a VALUES (-0.0001, -0.5, -1.5, -12345)",
    )
    ((a, b, c, d),) = log.inserted("a")
    assert (str(a), str(b), c, str(d)) == ("-0.0001", "-0.5000", "-1.500000000000000000000000000000", "-12345")


@pytest.mark.edge(5)
def test_floats(server: MariaDb) -> None:
    log = log_of(server, "CREATE TABLE a (f FLOAT, d DOUBLE)", "INSERT INTO a VALUES (0.1, 1e308), (-0e0, -0e0)")
    (first, _) = log.inserted("a")
    assert str(np.float32(first[0])) == "0.1"
    assert first[1] == 1e308


@pytest.mark.edge(6)
def test_negative_times(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (a TIME(1), b TIME(6), c TIME)",
        "INSERT INTO a VALUES ('-00:00:00.1', '-838:59:59.999999', '-00:00:01')",
    )
    assert log.inserted("a") == [tuple(map(micro, ("-00:00:00.1", "-838:59:59.999999", "-00:00:01")))]


@pytest.mark.edge(7)
def test_datetimes_at_their_borders(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (a DATETIME(3), b DATETIME(6), c DATETIME)",
        "INSERT INTO a VALUES ('2024-02-29 23:59:59.123', '9999-12-31 23:59:59.999999', '0000-00-00 00:00:00')",
    )
    assert log.inserted("a") == [("2024-02-29 23:59:59.123", "9999-12-31 23:59:59.999999", "0000-00-00 00:00:00")]


@pytest.mark.edge(8)
def test_days_that_no_calendar_has(server: MariaDb) -> None:
    log = log_of(
        server,
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE a (a DATE, b DATE)",
        "INSERT INTO a VALUES ('2024-02-31', '2024-00-00')",
    )
    assert log.inserted("a") == [("2024-02-31", "2024-00-00")]


@pytest.mark.edge(9)
def test_timestamps_do_not_depend_on_the_session(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (t TIMESTAMP NULL)",
        "INSERT INTO a VALUES (0)",
        "INSERT INTO a VALUES ('1970-01-01 00:00:01'), ('2038-01-19 03:14:07')",
        "SET time_zone = '+05:30'",
        "INSERT INTO a VALUES ('1970-01-01 05:30:01'), ('2038-01-19 08:44:07')",
    )
    texts = ["1970-01-01 00:00:01", "2038-01-19 03:14:07"]
    assert log.inserted("a") == [("0000-00-00 00:00:00",), *((text,) for text in texts * 2)]


@pytest.mark.edge(10)
def test_timestamps_to_2106(server: MariaDb) -> None:
    if version(server) < (11, 5):
        log = log_of(server, "CREATE TABLE a (t TIMESTAMP(6) NULL)", "INSERT INTO a VALUES ('2106-02-07 06:28:15')")
        assert log.inserted("a") == [("0000-00-00 00:00:00.000000",)]
        return
    log = log_of(
        server,
        "CREATE TABLE a (t TIMESTAMP(6) NULL)",
        "INSERT INTO a VALUES ('2106-02-07 06:28:15.999999'), ('2038-01-19 03:14:08')",
    )
    assert log.inserted("a") == [("2106-02-07 06:28:15.999999",), ("2038-01-19 03:14:08.000000",)]


@pytest.mark.edge(11)
def test_years(server: MariaDb) -> None:
    log = log_of(server, "CREATE TABLE a (y YEAR)", "INSERT INTO a VALUES (0), (1901), (2155)")
    assert log.inserted("a") == [(0,), (1901,), (2155,)]


@pytest.mark.edge(12)
def test_enums(server: MariaDb) -> None:
    labels = ",".join(f"'l{i}'" for i in range(300))
    log = log_of(server, f"CREATE TABLE a (e ENUM({labels}))", "INSERT INTO a VALUES ('l299'), ('no such'), (NULL)")
    assert log.inserted("a") == [("l299",), ("",), (None,)]
    assert log.columns("a")[0].length == 2


@pytest.mark.edge(13)
def test_sets(server: MariaDb) -> None:
    widths = {9: 2, 17: 3, 24: 3, 25: 4, 33: 8, 64: 8}
    declared = ", ".join(f"s{n} SET({','.join(f'{chr(39)}m{i}{chr(39)}' for i in range(n))})" for n in widths)
    last = ", ".join(f"'m0,m{n - 1}'" for n in widths)
    log = log_of(server, f"CREATE TABLE a ({declared})", f"INSERT INTO a VALUES ({last})")
    assert log.inserted("a") == [tuple(f"m0,m{n - 1}" for n in widths)]
    assert [column.length for column in log.columns("a")] == list(widths.values())


@pytest.mark.edge(14)
def test_pad_spaces(server: MariaDb) -> None:
    log = log_of(server, "CREATE TABLE a (c CHAR(5), v VARCHAR(10))", "INSERT INTO a VALUES ('ab  ', 'ab  ')")
    assert log.inserted("a") == [("ab", "ab  ")]


@pytest.mark.edge(15)
def test_long_chars_hide_their_length_in_the_type(server: MariaDb) -> None:
    sizes = (63, 64, 100, 255)
    log = log_of(
        server,
        f"CREATE TABLE a ({', '.join(f'c{n} CHAR({n})' for n in sizes)})",
        f"INSERT INTO a VALUES ({', '.join(f'REPEAT({chr(39)}😀{chr(39)}, {n})' for n in sizes)}), ('a','b','c','d')",
    )
    assert log.inserted("a") == [tuple("😀" * n for n in sizes), tuple("abcd")]
    assert [(column.type, column.length) for column in log.columns("a")] == [(ColumnType.STRING, 4 * n) for n in sizes]
    assert b"\xfe\xfc\xee\x00\xee\x90\xce\xfc" in log.data


@pytest.mark.edge(16)
def test_binary_is_padded_again(server: MariaDb) -> None:
    log = log_of(server, "CREATE TABLE a (b BINARY(5))", "INSERT INTO a VALUES (0x6100620000)")
    assert b"\x03a\x00b" in log.data
    assert log.inserted("a") == [(b"a\0b\0\0",)]


@pytest.mark.edge(17)
def test_length_prefixes_of_varchar(server: MariaDb) -> None:
    log = log_of(server, "CREATE TABLE a (a VARCHAR(63), b VARCHAR(64))", "INSERT INTO a VALUES ('€', '€')")
    assert b"\x03\xe2\x82\xac\x03\x00\xe2\x82\xac" in log.data
    assert log.inserted("a") == [("€", "€")]


@pytest.mark.edge(18)
def test_blobs_of_every_length_of_length(server: MariaDb) -> None:
    sizes = (0, 1, 255, 256, 65535, 65536, 16777216)
    log = log_of(
        server,
        "CREATE TABLE a (b LONGBLOB)",
        *(f"INSERT INTO a VALUES (REPEAT('x', {size}))" for size in sizes),
        before=["SET SESSION max_statement_time = 0"],
    )
    found = log.inserted("a")
    assert [len(row[0]) for row in found] == list(sizes)
    assert set(found[-1][0]) == {ord("x")}


@pytest.mark.edge(19)
def test_text_in_odd_character_sets(server: MariaDb) -> None:
    latin1 = bytes(range(0x80, 0xA0))
    declared = ["utf8mb4", "latin1", "gbk", "ucs2", "utf16le", "utf32"]
    log = log_of(
        server,
        f"CREATE TABLE a ({', '.join(f'{name} TEXT CHARACTER SET {name}' for name in declared)}, raw BLOB)",
        f"INSERT INTO a VALUES ('a😀', CONVERT(0x{latin1.hex()} USING latin1), '漢字', 'é漢', 'é😀', 'é😀', 0xC328FF)",
    )
    assert log.inserted("a") == [
        ("a😀", log_text(latin1), "漢字", "é漢", "é😀", "é😀", b"\xc3\x28\xff"),
    ]


def log_text(data: bytes) -> str:
    """What MariaDB calls latin1: cp1252, and the five bytes that it leaves out as the control characters they are."""
    return "".join(bytes([i]).decode("cp1252", "ignore") or chr(i) for i in data)


@pytest.mark.edge(20)
def test_json_is_text_as_it_was_written(server: MariaDb) -> None:
    text = '  {"b" :1,"a":[ 1.0, null,"ü" ]} '
    log = log_of(server, "CREATE TABLE a (j JSON)", f"INSERT INTO a VALUES ('{text}')")
    assert log.inserted("a") == [(text,)]


@pytest.mark.edge(21)
def test_geometry_has_its_srid(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (p POINT, g GEOMETRY)",
        "INSERT INTO a VALUES (POINT(1,2), ST_GeomFromText('LINESTRING(0 0,1 1)', 4326))",
    )
    ((point, line),) = log.inserted("a")
    assert point.hex() == "000000000101000000000000000000f03f0000000000000040"
    assert line[:4] == (4326).to_bytes(4, "little")
    assert line[4:9].hex() == "0102000000"


@pytest.mark.edge(22)
def test_addresses_are_padded_again(server: MariaDb) -> None:
    columns = {"i6": ("INET6", ["::", "2001:db8::1"])}
    if version(server) >= (10, 7):
        columns["u"] = ("UUID", ["123e4567-e89b-12d3-a456-426655440000", "00000000-0000-0000-0000-000000000000"])
    if version(server) >= (10, 10):
        columns["i4"] = ("INET4", ["10.0.0.0", "10.0.0.1"])
    rows = list(zip(*(values for _, values in columns.values()), strict=True))
    log = log_of(
        server,
        f"CREATE TABLE a ({', '.join(f'{name} {declared}' for name, (declared, _) in columns.items())})",
        f"INSERT INTO a VALUES {', '.join(repr(row) if len(row) > 1 else f'({row[0]!r})' for row in rows)}",
    )
    assert log.inserted("a", with_catalog=True) == rows
    assert [[len(value) for value in row] for row in log.inserted("a")] == [
        [{"INET6": 16, "UUID": 16, "INET4": 4}[declared] for declared, _ in columns.values()]
    ] * 2


@pytest.mark.edge(23)
def test_vectors(server: MariaDb) -> None:
    if version(server) < (11, 7):
        with pytest.raises(pymysql.err.OperationalError, match="VECTOR"):
            log_of(server, "CREATE TABLE a (v VECTOR(3))")
        return
    log = log_of(server, "CREATE TABLE a (v VECTOR(3))", "INSERT INTO a VALUES (VEC_FromText('[1,-2,0.5]'))")
    assert log.inserted("a") == [(bytes.fromhex("0000803f000000c00000003f"),)], "the stream alone says VARBINARY"
    assert log.inserted("a", with_catalog=True) == [([1.0, -2.0, 0.5],)]


@pytest.mark.edge(24)
def test_compressed_columns(server: MariaDb) -> None:
    values = ["", "abc", "a" * 300]
    log = log_of(
        server,
        "CREATE TABLE a (b BLOB COMPRESSED, v VARCHAR(500) COMPRESSED, t TEXT COMPRESSED, n VARBINARY(400) COMPRESSED)",
        f"INSERT INTO a VALUES {', '.join(str((value,) * 4) for value in values)}, (NULL, NULL, NULL, NULL)",
    )
    assert log.inserted("a") == [
        *((value.encode(), value, value, value.encode()) for value in values),
        (None,) * 4,
    ]
    assert {column.type for column in log.columns("a")} == {ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED}
    assert bytes.fromhex("8a012c4b4c1c05c40200") in log.data


@pytest.mark.edge(25)
def test_old_temporal_formats(server: MariaDb) -> None:
    log = log_of(
        server,
        "INSERT INTO whole VALUES ('2024-02-29 23:59:59', '2038-01-19 03:14:07', '-838:59:59'), ('0000-00-00', 0, 1)",
        before=[
            "SET GLOBAL mysql56_temporal_format = OFF",
            "CREATE TABLE whole (d DATETIME, s TIMESTAMP NULL, t TIME)",
            "SET GLOBAL mysql56_temporal_format = ON",
        ],
    )
    assert log.inserted("whole", with_catalog=True) == [
        ("2024-02-29 23:59:59", "2038-01-19 03:14:07", micro("-838:59:59")),
        ("0000-00-00 00:00:00", "0000-00-00 00:00:00", micro("00:00:01")),
    ]
    log = log_of(
        server,
        "INSERT INTO digits VALUES ('2024-02-29 23:59:59.123')",
        before=[
            "SET GLOBAL mysql56_temporal_format = OFF",
            "CREATE TABLE digits (d DATETIME(3))",
            "SET GLOBAL mysql56_temporal_format = ON",
        ],
    )
    with pytest.raises(UnsupportedColumnError, match=r"Column d of table edge\.digits is datetime\(3\).*ALTER TABLE"):
        log.inserted("digits", with_catalog=True)


@pytest.mark.edge(26)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
def test_nulls(server: MariaDb, count: int) -> None:
    rows: list[tuple[int | None, ...]] = [
        (None,) * count,
        tuple(None if i % 2 else i for i in range(count)),
        tuple(i if i % 2 else None for i in range(count)),
    ]
    sql = ", ".join("(" + ",".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows)
    log = log_of(
        server, f"CREATE TABLE a ({', '.join(f'c{i} INT' for i in range(count))})", f"INSERT INTO a VALUES {sql}"
    )
    assert log.inserted("a") == rows


@pytest.mark.edge(27)
@pytest.mark.parametrize("count", [250, 251, 300, 1017])
def test_many_columns(server: MariaDb, count: int) -> None:
    row = tuple(None if i % 3 == 0 else i % 100 for i in range(count))
    sql = ",".join("NULL" if v is None else str(v) for v in row)
    log = log_of(
        server, f"CREATE TABLE a ({', '.join(f'c{i} TINYINT' for i in range(count))})", f"INSERT INTO a VALUES ({sql})"
    )
    assert log.inserted("a") == [row]
