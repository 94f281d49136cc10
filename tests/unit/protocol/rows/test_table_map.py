"""Table maps against what the server itself says of the tables, and the bytes around the columns."""

from __future__ import annotations

import re

import pytest

from replica.errors import ProtocolError, ReplicaError, TruncatedError, UnsupportedColumnError
from replica.protocol.constants import ColumnType, EventType, TableMapFlag
from replica.protocol.events.decode import TableMapEvent
from replica.protocol.rows.table_map import parse_table_map
from tests.kit.some import some
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.load import HERE, VERSIONS, columns, decode_file

# 11.8, NO_LOG: v.t (a INT PRIMARY KEY, b LONGTEXT)
PLAIN = bytes.fromhex("120000000000 0100 01 76 00 01 74 00 02 03fc 01 04 02")
BINARY = 63


def table_maps(version: str, stem: str = "metadata_full") -> dict[str, TableMapEvent]:
    data = (HERE / version / f"{stem}.binlog").read_bytes()
    return {event.table: event for _, event in decode_file(data) if isinstance(event, TableMapEvent)}


def test_plain() -> None:
    event = decode_body(TableMapEvent, EventType.TABLE_MAP, PLAIN)
    assert (event.table_id, event.flags, event.database, event.table) == (18, TableMapFlag.BIT_LEN_EXACT, "v", "t")
    assert [(c.type, c.length, c.nullable, c.name) for c in event.columns] == [
        (ColumnType.LONG, 4, False, None),
        (ColumnType.BLOB, 4, True, None),
    ]
    assert (event.primary_key, event.unknown_metadata) == ((), ())


def test_parsing_a_body_alone() -> None:
    event = parse_table_map(PLAIN)
    assert event.columns == decode_body(TableMapEvent, EventType.TABLE_MAP, PLAIN).columns
    assert (event.table_id, event.flags, event.database, event.table) == (18, 1, "v", "t")


def test_four_byte_table_ids() -> None:
    assert parse_table_map(PLAIN[2:], 6).table_id == 0
    assert parse_table_map(PLAIN[:4] + PLAIN[6:], 6).table_id == 18


def test_content_is_what_defines_the_table_and_not_its_id() -> None:
    other_id = b"\x13" + PLAIN[1:]
    assert parse_table_map(other_id).content == parse_table_map(PLAIN).content == PLAIN[8:]
    assert parse_table_map(PLAIN[:-1] + b"\x00").content != PLAIN[8:]


def test_an_unknown_type_names_its_table() -> None:
    damaged = PLAIN.replace(b"\x03\xfc", b"\x03\x63")
    with pytest.raises(UnsupportedColumnError, match=r"^v\.t: column 2 has the unknown type code 99"):
        parse_table_map(damaged)


def test_more_columns_than_a_table_can_have() -> None:
    with pytest.raises(ProtocolError, match="65535 columns"):
        parse_table_map(PLAIN[:14] + b"\xfc\xff\xff" + b"\x03" * 70000)


def test_every_truncation_is_refused() -> None:
    for length in range(len(PLAIN)):
        with pytest.raises(TruncatedError):
            parse_table_map(PLAIN[:length])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_metadata_equals_what_the_server_says(version: str) -> None:
    maps = table_maps(version)
    told = columns(version)
    assert len(told) >= 10
    for table, rows in told.items():
        event = maps[table]
        # Hidden columns of system versioning are in the row images but not in information_schema.
        hidden = ["row_start", "row_end"] if table == "versioned" else []
        assert [c.name for c in event.columns] == [row[0] for row in rows] + hidden
        for column, row in zip(event.columns, rows, strict=False):
            name, data_type, column_type, nullable, collation, key_place, _ = row
            where = f"{table}.{name}"
            assert isinstance(column_type, str)
            assert column.nullable == (nullable == "YES"), where
            if column.unsigned is not None:
                assert column.unsigned == ("unsigned" in column_type or data_type == "year"), where
            if collation is not None:
                assert column.collation == collation, where
            elif column.collation is not None:
                assert column.collation == BINARY, where
            if data_type in ("enum", "set"):
                labels = [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", column_type)]
                assert column.labels is not None
                codec = {8: "cp1252", 51: "cp1251"}.get(column.collation or 0, "utf-8")
                assert [label.decode(codec) for label in column.labels] == labels, where
            assert column.is_key == (key_place is not None), where
        key = sorted((row for row in rows if row[5] is not None), key=lambda row: row[5])  # type: ignore[arg-type,return-value]
        # The server adds the hidden end of validity to the key of a versioned table.
        assert [event.columns[index].name for index in event.primary_key] == [row[0] for row in key] + hidden[1:]
        assert list(event.key_prefixes)[: len(key)] == [row[6] or 0 for row in key]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_numeric_column_has_a_sign_and_every_text_a_collation(version: str) -> None:
    for event in some(table_maps(version).values()):
        for column in some(event.columns):
            numeric = column.type in {1, 2, 3, 4, 5, 8, 9, 13, 246}
            assert (column.unsigned is not None) == numeric
            assert (column.collation is not None) == (column.type in {15, 140, 141, 247, 248, 252, 254, 255})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wide_table_with_a_long_name(version: str) -> None:
    event = table_maps(version)["名" * 48]
    assert [column.name for column in event.columns] == [f"c{number}" for number in range(1, 301)]


@pytest.mark.parametrize("version", VERSIONS)
def test_without_metadata_nothing_is_known_and_nothing_is_guessed(version: str) -> None:
    maps = table_maps(version, "minimal_image")
    keyed = maps["keyed"]
    assert [(c.name, c.unsigned, c.collation, c.labels) for c in keyed.columns] == [(None, None, None, None)] * 5
    assert [c.type for c in keyed.columns] == [3, 3, 15, 252, ColumnType.ENUM]
    assert not any(c.is_key for c in keyed.columns)
    assert maps["one"].flags & TableMapFlag.HAS_TRIGGERS


@pytest.mark.parametrize("version", VERSIONS)
def test_mutations_only_raise_our_errors(version: str) -> None:
    for event in table_maps(version).values():
        if len(event.columns) > 20:
            continue
        body = bytes(8) + event.content
        for at in range(8, len(body)):
            for value in (0, 0x7F, 0xFB, 0xFC, 0xFE, 0xFF, body[at] ^ 1):
                try:
                    parse_table_map(body[:at] + bytes((value,)) + body[at + 1 :])
                except ReplicaError:
                    continue
