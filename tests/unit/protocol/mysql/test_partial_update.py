"""PARTIAL_UPDATE_ROWS made plain: images of any columns, partial and whole values, wanted and unwanted ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.mysql.partial_update import apply_partial_update
from replica.protocol.rows.table_map import ColumnDef
from tests.unit.protocol.mysql.wire_json import binary

T = ColumnType
ID = ColumnDef(type=T.LONG, metadata=b"", length=4, name="id")
A = ColumnDef(type=T.JSON, metadata=b"\4", length=4, name="a")
B = ColumnDef(type=T.JSON, metadata=b"\4", length=4, name="b")
COLUMNS = (ID, A, B)
ALL = b"\x07"


def number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def value(document: Any) -> bytes:
    data = binary(document)
    return number(len(data)) + data


def diffs(data: bytes) -> bytes:
    return number(len(data)) + data


def text(shown: str) -> bytes:
    return number(len(shown.encode())) + shown.encode()


REPLACE_K = b"\0\3$.k\3\5\2\0"  # $.k becomes 2


def test_a_partial_and_a_whole_value() -> None:
    before = b"\0" + number(1) + value({"k": 1}) + value([1])
    after = b"\1\1" + b"\0" + number(1) + diffs(REPLACE_K) + value([2])
    plain = b"\0" + number(1) + text('{"k": 1}') + text("[1]") + b"\0" + number(1) + text('{"k": 2}') + text("[2]")
    assert apply_partial_update(before + after, ALL, ALL, COLUMNS) == plain
    assert apply_partial_update((before + after) * 2, ALL, ALL, COLUMNS) == plain * 2


def test_a_value_that_did_not_change_is_an_empty_list_of_diffs() -> None:
    before = b"\0" + number(1) + value({"k": 1}) + value([1])
    after = b"\1\3" + b"\0" + number(1) + diffs(b"") + diffs(b"")
    assert apply_partial_update(before + after, ALL, ALL, COLUMNS).endswith(text('{"k": 1}') + text("[1]"))


def test_bits_count_every_json_column_of_the_table() -> None:
    """Also those that the image lacks: with MINIMAL, the second JSON column alone still has the second bit."""
    before = b"\0" + number(1) + value([1]) + value({"k": 1})
    after = b"\1\2" + b"\0" + diffs(REPLACE_K)
    assert apply_partial_update(before + after, ALL, b"\4", COLUMNS).endswith(b"\0" + text('{"k": 2}'))


def test_nulls_and_options_zero() -> None:
    image = b"\6" + number(1)
    assert apply_partial_update(image + b"\0" + image, ALL, ALL, COLUMNS) == image * 2


def test_a_diff_without_a_value_before() -> None:
    after = b"\1\1" + b"\0" + diffs(REPLACE_K)
    for before, present in ((b"\0" + number(1), b"\1"), (b"\2" + number(1) + value([1]), ALL)):
        with pytest.raises(ProtocolError, match=r"column a: a JSON diff lacks the value .* binlog_row_image=FULL"):
            apply_partial_update(before + after, present, b"\2", COLUMNS)
        plain = apply_partial_update(before + after, present, b"\2", COLUMNS, wanted=(0, 2))
        assert plain.endswith(b"\0" + text("null"))


def test_unwanted_values_are_not_looked_at() -> None:
    damaged = number(2) + b"\xff\xff"
    image = b"\4" + number(1) + damaged
    assert (
        apply_partial_update(image + b"\0" + image, ALL, ALL, COLUMNS, wanted=())
        == (b"\4" + number(1) + text("null")) * 2
    )
    with pytest.raises(ProtocolError, match="column a: JSON: unknown type 255"):
        apply_partial_update(image + b"\0" + image, ALL, ALL, COLUMNS)


def test_unknown_options() -> None:
    with pytest.raises(ProtocolError, match="unknown value options 2"):
        apply_partial_update(b"\6" + number(1) + b"\2\0", ALL, ALL, COLUMNS)


@pytest.mark.parametrize(
    ("column", "data"),
    [
        (ColumnDef(type=T.STRING, metadata=b"\xfe\x0a", length=10), b"\2ab"),
        (ColumnDef(type=T.STRING, metadata=b"\xee\x90", length=400), b"\2\0ab"),
        (ColumnDef(type=T.VARCHAR, metadata=b"\0\1", length=256), b"\2\0ab"),
        (ColumnDef(type=T.BLOB, metadata=b"\3", length=3), b"\2\0\0ab"),
        (ColumnDef(type=T.GEOMETRY, metadata=b"\4", length=4), b"\2\0\0\0ab"),
        (ColumnDef(type=T.VECTOR, metadata=b"\4", length=4), b"\4\0\0\0abcd"),
        (ColumnDef(type=T.NEWDECIMAL, metadata=b"\x0a\4", length=0, precision=10, scale=4), b"\x81\xe2\x40\x1e\xd2"),
        (ColumnDef(type=T.BIT, metadata=b"\2\1", length=10), b"\2\3"),
        (ColumnDef(type=T.DATETIME2, metadata=b"\3", length=7, fsp=3), b"\x99\xb2\xbb\x7e\xfb\4\xce"),
        (ColumnDef(type=T.ENUM, metadata=b"\xf7\2", length=2), b"\1\0"),
        (ColumnDef(type=T.YEAR, metadata=b"", length=1), b"\x65"),
    ],
)
def test_values_of_other_types_stay_as_they_are(column: ColumnDef, data: bytes) -> None:
    image = b"\0" + data + value([1])
    plain = b"\0" + data + text("[1]")
    assert apply_partial_update(image + b"\0" + image, b"\3", b"\3", (column, A)) == plain * 2


@given(st.data())
def test_damaged_images_raise_our_errors_only(data: st.DataObject) -> None:
    before = b"\0" + number(1) + value({"k": 1, "list": [1, 2]}) + value([1])
    images = bytearray(before + b"\1\1" + b"\0" + number(1) + diffs(REPLACE_K) + value([2]))
    for _ in range(data.draw(st.integers(0, 3))):
        images[data.draw(st.integers(0, len(images) - 1))] = data.draw(st.integers(0, 255))
    for end in range(len(images)):
        try:
            apply_partial_update(images[:end], ALL, ALL, COLUMNS)
        except ProtocolError:
            continue
