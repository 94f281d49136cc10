"""A key as an offset keeps it: back to its bytes, and to SQL that finds it again."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import Any

import pytest

from replica.errors import KeyChangedError, ProtocolError, SchemaError
from replica.protocol.constants import ColumnType as T
from replica.protocol.rows.table_map import ColumnDef
from replica.schema.table import ColumnSchema
from replica.snapshot.rows.kept_key import kept_integer, kept_integers, kept_key, key_bytes, key_literals, key_parts
from replica.snapshot.rows.row_block import TableKey
from tests.kit.binlog.values import packed_decimal
from tests.kit.snapshot.result_rows import table


def column(data_type: str, column_type: str = "", **more: Any) -> ColumnSchema:
    return ColumnSchema(name="k", data_type=data_type, column_type=column_type or data_type, nullable=False, **more)


@pytest.mark.parametrize(
    ("schema", "value", "literal"),
    [
        (column("int"), struct.pack("<i", -5), "-5"),
        (column("bigint", unsigned=True), b"\xff" * 8, "18446744073709551615"),
        (column("enum", labels=("a", "b")), b"\2", "2"),
        (column("set", labels=("a",) * 9), b"\1\1", "257"),
        (column("bit", precision=12), b"\x0f\x01", "3841"),
        (column("year", "year(4)"), b"\x7c", "2024"),
        (column("year", "year(4)"), b"\0", "0"),
        (column("year", "year(2)"), b"\x45", "69"),
        (column("decimal", precision=30, scale=5), packed_decimal(-123, 30, 5), "-0.00123"),
        (column("date"), b"\0\0\0", "'0000-00-00'"),
        (column("datetime", fsp=2), bytes.fromhex("99b2bb7efb") + b"\x63", "'2024-02-29 23:59:59.99'"),
        (column("timestamp", fsp=0), bytes(4), "'0000-00-00 00:00:00'"),
        (column("time", fsp=1), (0x80000000 - 10).to_bytes(4, "big"), "'-00:00:00.1'"),
        (column("uuid"), b"\x12" * 15, "'12121212-1212-1212-1212-121212121200'"),
        (column("inet4"), b"\x0a", "'10.0.0.0'"),
        (column("inet6"), b"", "'::'"),
        (column("binary", octets=4), b"a\0b", "x'61006200'"),
        (column("varbinary", octets=4), b"a\0", "x'6100'"),
        (column("varchar", octets=4, charset="latin1"), b"\xe9'", "_latin1 x'e927'"),
    ],
    ids=lambda found: found if isinstance(found, str) else None,
)
def test_literals_are_exact(schema: ColumnSchema, value: bytes, literal: str) -> None:
    kept = len(value).to_bytes(2, "little") + value
    assert key_literals(table([schema]), TableKey("k", (0,), ordered=True), kept) == (literal,)


NUMBER, TEXT = column("int"), column("varchar", octets=300, charset="latin1")
SCHEMA = table([ColumnSchema(name="n", data_type="int", column_type="int(11)"), TEXT, NUMBER])
KEY = TableKey("PRIMARY", (2, 1), ordered=False)
VALUES = b"\4\0\7\0\0\0\3\0abc"
MARK = bytes.fromhex("ffff8bacbe00cd91fc7b")  # of these columns, without their collations
IMAGE = b"\xf9" + b"\3\0abc" + b"\7\0\0\0"


def test_a_key_of_an_image_is_kept_and_read() -> None:
    kept = kept_key(SCHEMA, KEY, IMAGE)
    assert (kept[:2], kept[10:]) == (b"\xff\xff", VALUES)
    before_collations = MARK + VALUES
    for one in (kept, before_collations, VALUES):  # offsets of before marks told the collations, of before keys had one
        assert key_literals(SCHEMA, KEY, one) == ("7", "_latin1 x'616263'")
        assert key_bytes(SCHEMA, KEY, one) == b"\x80\0\0\7abc\0\0"


@pytest.mark.parametrize(
    "columns",
    [
        (replace(NUMBER, name="other"), TEXT),
        (replace(NUMBER, column_type="int(10) unsigned", unsigned=True), TEXT),
        (NUMBER, replace(TEXT, column_type="varchar(100)")),
        (NUMBER, replace(TEXT, charset="utf8mb4", collation="utf8mb4_bin")),
        (replace(NUMBER, data_type="enum", column_type="enum('a')", labels=("a",)), TEXT),
    ],
)
def test_a_key_of_other_columns_is_refused_where_the_values_would_fit(columns: tuple[ColumnSchema, ...]) -> None:
    number, text = columns
    altered = table([SCHEMA.columns[0], text, number])
    with pytest.raises(KeyChangedError, match=r"key of table d\.t was changed while it was read"):
        key_bytes(altered, KEY, kept_key(SCHEMA, KEY, IMAGE))


def test_columns_change_their_order_in_a_key() -> None:
    twice = table([replace(NUMBER, name="a"), replace(NUMBER, name="b")])
    kept = kept_key(twice, TableKey("PRIMARY", (0, 1), ordered=True), b"\xfc" + b"\1\0\0\0" + b"\2\0\0\0")
    with pytest.raises(KeyChangedError):
        key_literals(twice, TableKey("PRIMARY", (1, 0), ordered=True), kept)


def test_names_are_compared_without_case_and_what_is_no_part_of_the_key_is_not_compared() -> None:
    altered = table([replace(NUMBER, name="added"), replace(TEXT, name="K", comment="new"), NUMBER])
    kept = kept_key(SCHEMA, KEY, IMAGE)
    assert key_literals(altered, KEY, kept) == ("7", "_latin1 x'616263'")


def test_a_key_whose_name_was_marked_by_casefold_is_read_still() -> None:
    """Marks of before had `masse` for this column; now they have its own name, and `masse` is another column."""
    german = table([ColumnSchema(name="maße", data_type="int", column_type="int(11)")])
    key = TableKey("PRIMARY", (0,), ordered=True)
    told = repr([("masse", "int(11)")])
    older = b"\xff\xff" + hashlib.blake2b(told.encode(), digest_size=8).digest()
    assert key_literals(german, key, older + b"\4\0\7\0\0\0") == ("7",)
    kept = kept_key(german, key, b"\xfe\7\0\0\0")
    assert kept[:10] != older
    assert key_literals(german, key, kept) == ("7",)


@pytest.mark.parametrize("number", [-(2**31), -1, 0, 2**31 - 1])
def test_a_key_of_one_integer_is_that_number(number: int) -> None:
    schema, key = table([NUMBER]), TableKey("PRIMARY", (0,), ordered=True)
    (kept,) = kept_integers(schema, key, [number])
    assert kept == kept_key(schema, key, b"\xfe" + struct.pack("<i", number))
    assert kept_integer(schema, key, kept) == number


def test_null_in_a_key_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the key PRIMARY is NULL"):
        kept_key(SCHEMA, KEY, b"\xfb" + b"\1\0\0\0" + b"\7\0\0\0")


@pytest.mark.parametrize("kept", [b"", b"\4\0\7\0\0\0", b"\3\0\7\0\0\3\0abc", b"\4\0\7\0\0\0\3\0abc!",
                                  b"\4\0\7\0\0\0\2\2" + b"a" * 514, b"\4\0\7\0\0\0\3\0ab"])  # fmt: skip
def test_bytes_of_another_key_are_refused(kept: bytes) -> None:
    with pytest.raises(KeyChangedError, match=r"it is \(k int, k varchar\) now, and its delivered rows"):
        key_bytes(SCHEMA, KEY, kept)


def test_parts_of_the_streams_map() -> None:
    short = ColumnDef(type=T.LONG, metadata=b"", length=4)
    text = ColumnDef(type=T.VARCHAR, metadata=b"\x2c\1", length=300)
    assert key_parts(SCHEMA, KEY, [short, text, short]) == key_parts(SCHEMA, KEY)
    with pytest.raises(SchemaError, match="has 2 columns in its table map, and column 3 is in its key PRIMARY"):
        key_parts(SCHEMA, KEY, [short, text])
