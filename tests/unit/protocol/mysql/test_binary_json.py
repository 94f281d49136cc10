"""Binary JSON: the text that MySQL prints for it, and damaged documents."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.mysql.binary_json import MAX_DEPTH, Opaque, double_text, json_text, parse_json, rewrite_json
from tests.unit.protocol.mysql.wire_json import binary
from tests.vectors.mysql.load import HERE

DOUBLES = json.loads((HERE / "doubles.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("", "null"),
        ("0400", "null"),
        ("0401", "true"),
        ("0402", "false"),
        ("050100", "1"),
        ("0500 80", "-32768"),
        ("06ffff", "65535"),
        ("07ffff ffff", "-1"),
        ("08ffffffff", "4294967295"),
        ("09ffffffffffffffff", "-1"),
        ("0affffffffffffffff", "18446744073709551615"),
        ("0b000000000000f83f", "1.5"),
        ("0c0161", '"a"'),
        ("0c05c3a922 0a5c", '"é\\"\\n\\\\"'),
        ("0c8001" + "61" * 128, '"' + "a" * 128 + '"'),
        ("0000000400", "{}"),
        ("0200000400", "[]"),
        ("0201000700050100", "[1]"),
        ("0fff0161", '"base64:type255:YQ=="'),
        ("0f0a0800000000 00bab219", '"2024-02-29"'),
        ("0ff6040201 8105", "1.5"),
        ("0ff6070b02 80000001 32", "1.50"),
    ],
)  # fmt: skip
def test_documents(document: str, text: str) -> None:
    assert rewrite_json(bytes.fromhex(document)).decode() == text


def test_doubles_look_as_mysql_prints_them() -> None:
    assert len(DOUBLES) > 200
    assert [double_text(float(number)) for number, _ in DOUBLES] == [text for _, text in DOUBLES]


@pytest.mark.parametrize(
    ("kind", "packed", "text"),
    [
        (ColumnType.TIME, "-00:00:00.5", '"-00:00:00.500000"'),
        (ColumnType.TIME, "838:59:59", '"838:59:59.000000"'),
        (ColumnType.DATETIME, "1000-01-01 00:00:00.000001", '"1000-01-01 00:00:00.000001"'),
        (ColumnType.TIMESTAMP, "2038-01-19 03:14:07", '"2038-01-19 03:14:07.000000"'),
        (ColumnType.DATE, "0000-00-00 00:00:00", '"0000-00-00"'),
    ],
)
def test_temporal_values(kind: int, packed: str, text: str) -> None:
    assert json_text(Opaque(kind, _packed(packed))) == text


def _packed(text: str) -> bytes:
    """my_time's packed form: date << 41 | hour, minute, second << 24 | microseconds."""
    sign = -1 if text.startswith("-") else 1
    date, _, clock = text.lstrip("-").rpartition(" ")
    hour, minute, second = clock.split(":")
    whole, _, fraction = second.partition(".")
    number = int(hour) << 12 | int(minute) << 6 | int(whole)
    if date:
        year, month, day = map(int, date.split("-"))
        number |= ((year * 13 + month) << 5 | day) << 17
    return (sign * (number << 24 | int(fraction.ljust(6, "0") or 0))).to_bytes(8, "little", signed=True)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_any_document_of_either_width(value: Any, large: bool) -> None:  # noqa: FBT001
    document = binary(value, large=large)
    assert parse_json(document) == value
    shown = json.loads(rewrite_json(document))
    assert shown == value or repr(shown) == repr(value)


@given(VALUES, st.data())
def test_damaged_documents_raise_our_errors_only(value: Any, data: st.DataObject) -> None:
    document = bytearray(binary(value, large=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    for end in range(len(document) + 1):
        try:
            found = rewrite_json(bytes(document[:end]))
        except ProtocolError:
            continue
        json.loads(found)


def test_values_that_share_bytes_are_refused() -> None:
    # an array of two hundred arrays that are the same bytes, of two hundred each, ...: 200 ** depth values
    inner = binary(["x" * 100])[1:]
    for _ in range(5):
        count = 200
        head = 4 + 3 * count
        entries = (b"\x02" + head.to_bytes(2, "little")) * count
        inner = count.to_bytes(2, "little") + (head + len(inner)).to_bytes(2, "little") + entries + inner
    with pytest.raises(ProtocolError, match="share the same bytes"):
        parse_json(b"\x02" + inner)


def test_depth_is_limited_as_in_mysql() -> None:
    nested: Any = 1
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert parse_json(binary(nested)) == nested
    with pytest.raises(ProtocolError, match="deeper than 100"):
        parse_json(binary([nested]))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("0d00", "unknown type 13"),
        ("0403", "not a literal"),
        ("0201000700040300", "not a literal"),
        ("0c0261", "2 bytes wanted"),
        ("0cffffffffff01", "more than five bytes"),
        ("0c01ff", "not utf-8"),
        ("0001000c000b0001000401 00 ff".replace(" ", ""), "not UTF-8"),
        ("0b000000000000f07f", "not a JSON number"),
        ("0b000000000000f87f", "not a JSON number"),
        ("02ffff0700", "65535 values"),
        ("0201000700 0c0700", "outside of its container"),
        ("0f0a0100", "temporal value of 1 bytes"),
        ("0ff60105", "without its precision"),
        ("0ff6020a0b", "without its precision"),
        ("0ff6030a0080", "in 1 bytes"),
        ("02", "ends too early"),
    ],
)
def test_refusals(document: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        rewrite_json(bytes.fromhex(document))


def test_a_number_of_an_int64_in_a_large_container_is_not_inlined() -> None:
    document = binary([1 << 40, 1 << 20], large=True)
    assert struct.pack("<q", 1 << 40) in document
    assert parse_json(document) == [1 << 40, 1 << 20]
