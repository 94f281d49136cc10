"""Optional metadata: each value counts its own kind of columns; bytes of real servers unless said otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import OptionalMetadata, read_optional_metadata
from replica.protocol.wire import Cursor

T = ColumnType


def read(types: list[ColumnType], hexadecimal: str) -> OptionalMetadata:
    return read_optional_metadata(types, Cursor(bytes.fromhex(hexadecimal)))


def values(found: OptionalMetadata, key: str) -> list[Any]:
    return [column.get(key) for column in found.columns]


def test_signedness_counts_year_and_not_bit() -> None:
    # (INT, YEAR, BIT(3), DECIMAL UNSIGNED, TINYINT UNSIGNED)
    found = read([T.LONG, T.YEAR, T.BIT, T.NEWDECIMAL, T.TINY], "01 01 70")
    assert values(found, "unsigned") == [False, True, None, True, True]


def test_signedness_is_most_significant_bit_first_over_several_bytes() -> None:
    # (INT, YEAR, BIT(3), DECIMAL U, TINYINT U, FLOAT U, DOUBLE, BIGINT U, MEDIUMINT, SMALLINT U)
    types = [T.LONG, T.YEAR, T.BIT, T.NEWDECIMAL, T.TINY, T.FLOAT, T.DOUBLE, T.LONGLONG, T.INT24, T.SHORT]
    found = read(types, "01 02 7a80")
    assert values(found, "unsigned") == [False, True, None, True, True, True, False, True, False, True]


def test_default_charset_index_counts_character_columns_only() -> None:
    # 11.8: (INT, VARCHAR utf8mb4, INT, CHAR latin1, TEXT, VARCHAR, ENUM latin1, SET, VARBINARY, BLOB, JSON, GEOMETRY)
    types = [
        T.LONG, T.VARCHAR, T.LONG, T.STRING, T.BLOB, T.VARCHAR, T.ENUM, T.SET, T.VARCHAR, T.BLOB, T.BLOB, T.GEOMETRY,
    ]  # fmt: skip
    found = read(types, "01 01 00 03 0e fc0009 08 fc0009 fc0009 3f 3f 2e 3f 07 01 00 0b 04 08 fc0009")
    assert values(found, "collation") == [None, 2304, None, 8, 2304, 2304, 8, 2304, 63, 63, 46, 63]
    assert values(found, "geometry") == [None] * 11 + [0]
    assert values(found, "unsigned") == [False, None, False] + [None] * 9


def test_default_charset_with_pairs() -> None:
    # 10.5: CHAR utf8mb4 x3, BINARY x2, VARCHAR x2, SET x2, INET6; field 2: default 45, characters 3, 4 and 7 binary
    types = [T.STRING] * 6 + [T.VARCHAR] * 2 + [T.SET] * 2 + [T.STRING]
    found = read(types, "02 07 2d 04 3f 05 3f 08 3f 0a 01 08")
    assert values(found, "collation") == [45, 45, 45, 45, 63, 63, 45, 45, 8, 8, 63]


def test_default_charset_of_a_collation_above_255() -> None:
    # 11.8: the same table with UUID and INET4
    types = [T.STRING] * 6 + [T.VARCHAR] * 2 + [T.SET] * 2 + [T.STRING] * 3
    found = read(types, "02 0d fc0009 04 3f 05 3f 08 3f 09 3f 0a 3f 0a 03 fc0009")
    assert values(found, "collation") == [2304] * 4 + [63, 63, 2304, 2304, 2304, 2304, 63, 63, 63]


def test_names_labels_in_the_columns_character_set() -> None:
    # (CHAR x4, ENUM('é','ü') latin1, SET('é','ü') utf8mb4, ENUM('ж') cp1251)
    types = [T.STRING] * 4 + [T.ENUM, T.SET, T.ENUM]
    found = read(
        types,
        "03 08 08 fc0009 fc000a 1c  04 0e 0161 0162 0163 0164 0165 0166 0167"
        " 0b 03 08 2e 33  05 07 02 02c3a9 02c3bc  06 08 02 01e9 01fc 01 01e6",
    )
    assert values(found, "name") == list("abcdefg")
    assert values(found, "collation") == [8, 2304, 2560, 28, 8, 46, 51]
    assert values(found, "labels") == [None] * 4 + [(b"\xe9", b"\xfc"), ("é".encode(), "ü".encode()), (b"\xe6",)]


def test_labels_with_commas_quotes_and_nothing() -> None:
    # the column e of the table above: 'a', 'b,c', '', 'd''e'
    assert read([T.ENUM], "06 0c 04 0161 03622c63 00 03642765").columns[0]["labels"] == (b"a", b"b,c", b"", b"d'e")


def test_simple_primary_key_in_key_order() -> None:
    # (a, b, c), PRIMARY KEY (c, b)
    found = read([T.LONG, T.LONG, T.VARCHAR], "08 02 02 01")
    assert (found.primary_key, found.key_prefixes) == ((2, 1), (0, 0))
    assert values(found, "is_key") == [None, True, True]


def test_primary_key_with_prefix() -> None:
    # (a, b, x1, x2, x3, c TEXT), PRIMARY KEY (a, c(2))
    found = read([T.LONG] * 5 + [T.BLOB], "09 04 00 00 05 02")
    assert (found.primary_key, found.key_prefixes) == ((0, 5), (0, 2))


def test_mysqls_visibility_and_vectors() -> None:
    # by hand
    found = read([T.LONG, T.VECTOR, T.LONG], "0c 01 a0 0d 01 03 01 01 40")
    assert values(found, "visible") == [True, False, True]
    assert values(found, "dimension") == [None, 3, None]


def test_unknown_types_are_skipped_by_their_length_and_reported() -> None:
    found = read([T.LONG], "f0 03 aabbcc 04 02 0161 f1 00")
    assert found.unknown == (0xF0, 0xF1)
    assert values(found, "name") == ["a"]


@pytest.mark.parametrize(
    ("types", "encoded", "message"),
    [
        ([T.VARCHAR, T.LONG], "02 03 2d 01 3f", "character column 1 of 1"),
        ([T.LONG], "08 01 01", "names column 1 of 1"),
        ([T.LONG], "09 02 05 00", "names column 5 of 1"),
        ([T.LONG], "01 02 0000", "left over"),
        ([T.LONG], "04 03 0161 00", "left over"),
        ([T.LONG], "04 01 05", "wanted"),
        ([T.ENUM], "06 09 feffffffffffffffff", "wanted"),
        ([T.LONG], "04 05 0161", "wanted"),
    ],
)
def test_damaged(types: list[ColumnType], encoded: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        read(types, encoded)


@given(st.lists(st.sampled_from(list(T)), max_size=12), st.binary(max_size=60))
def test_garbage(types: list[ColumnType], data: bytes) -> None:
    try:
        found = read_optional_metadata(types, Cursor(data))
    except ReplicaError:
        return
    assert len(found.columns) == len(types)
