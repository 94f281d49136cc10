from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.rows import values as v
from replica.protocol.rows.values import DateTimeParts

if TYPE_CHECKING:
    from uuid import UUID

MICROSECOND = timedelta(microseconds=1)
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
fsps = st.integers(0, 6)


@st.composite
def declared_decimals(draw: st.DrawFn) -> tuple[int, int, Decimal]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 38)))
    digits = draw(st.integers(0, 10**precision - 1))
    negative = draw(st.booleans())
    text = f"{digits:0{scale + 1}}"
    whole, fraction = (text[:-scale], text[-scale:]) if scale else (text, "")
    return precision, scale, Decimal(f"{'-' if negative and digits else ''}{whole}.{fraction}".rstrip("."))


def encode_decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """decimal2bin of the server, from the digits' text."""
    # By its text: arithmetic would round to the context's 28 digits.
    whole, _, fraction = f"{value:f}".lstrip("-").partition(".")
    whole = whole.zfill(precision - scale)[-(precision - scale) :] if precision > scale else ""
    lead = len(whole) % 9
    groups = [whole[:lead]] + [whole[i : i + 9] for i in range(lead, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    raw = b"".join(int(group).to_bytes(DIGIT_BYTES[len(group)], "big") for group in groups if group)
    if value < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes((raw[0] ^ 0x80, *raw[1:]))


@given(declared_decimals())
def test_decimal_round_trip(case: tuple[int, int, Decimal]) -> None:
    precision, scale, value = case
    data = encode_decimal(value, precision, scale)

    decoded = v.decimal(data, precision, scale)

    assert len(data) == v.decimal_width(precision, scale)
    assert decoded == value
    assert -int(decoded.as_tuple().exponent) == scale


@pytest.mark.parametrize(
    ("precision", "scale", "width"),
    [(1, 0, 1), (9, 0, 4), (10, 4, 5), (18, 9, 8), (65, 30, 30), (65, 0, 29), (38, 38, 17)],
)
def test_decimal_widths(precision: int, scale: int, width: int) -> None:
    assert v.decimal_width(precision, scale) == width


def test_a_decimal_group_beyond_its_digits_is_damage() -> None:
    with pytest.raises(ProtocolError, match=r"DECIMAL\(9,0\)"):
        v.decimal(bytes.fromhex("bb9aca00"), 9, 0)  # 10 ** 9 in nine digits


@given(st.integers(1, 8), st.data(), st.booleans())
def test_integer_round_trip(size: int, data: st.DataObject, signed: bool) -> None:  # noqa: FBT001
    low, high = (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)
    value = data.draw(st.sampled_from([low, high, 0]) | st.integers(low, high))
    assert v.integer(value.to_bytes(size, "little", signed=signed), signed=signed) == value


@given(st.integers(1, 64), st.data())
def test_bit_round_trip(bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, (1 << bits) - 1))
    assert v.bit(value.to_bytes((bits + 7) // 8, "big")) == value


def test_real_keeps_minus_zero_and_the_single_width() -> None:
    assert str(v.real(bytes.fromhex("00000080"))) == "-0.0"
    assert str(v.real(bytes.fromhex("0000000000000080"))) == "-0.0"
    assert v.real(bytes.fromhex("01000000")) == 2**-149


@pytest.mark.parametrize(("byte", "year"), [(0, 0), (1, 1901), (69, 1969), (70, 1970), (255, 2155)])
def test_year(byte: int, year: int) -> None:
    assert v.year(bytes([byte])) == year


def fraction(microseconds: int, fsp: int) -> bytes:
    size = (fsp + 1) // 2
    return (microseconds // 10 ** (6 - 2 * size)).to_bytes(size, "big")


def cut(microseconds: int, fsp: int) -> int:
    """As the server cuts a value to the declared digits."""
    return microseconds // 10 ** (6 - fsp) * 10 ** (6 - fsp)


@given(st.dates())
def test_date_round_trip(value: date) -> None:
    data = (value.year << 9 | value.month << 5 | value.day).to_bytes(3, "little")
    assert v.as_date(v.date_parts(data)) == value
    assert v.format_date(v.date_parts(data)) == value.isoformat()


@given(st.datetimes(), fsps)
def test_datetime_round_trip(value: datetime, fsp: int) -> None:
    value = value.replace(microsecond=cut(value.microsecond, fsp))
    days = (value.year * 13 + value.month) << 5 | value.day
    packed = (days << 17 | value.hour << 12 | value.minute << 6 | value.second) + 0x8000000000
    data = packed.to_bytes(5, "big") + fraction(value.microsecond, fsp)

    parts = v.datetime_parts(data)

    assert len(data) == 5 + v.fraction_width(fsp)
    assert v.as_datetime(parts) == value
    whole = value.strftime(f"{value.year:04}-%m-%d %H:%M:%S")
    assert v.format_datetime(parts, fsp) == (f"{whole}.{value.microsecond:06}"[: 20 + fsp] if fsp else whole)


@given(st.datetimes().map(lambda d: d.replace(microsecond=0)))
def test_old_datetime_round_trip(value: datetime) -> None:
    data = int(value.strftime(f"{value.year}%m%d%H%M%S")).to_bytes(8, "little")
    assert v.as_datetime(v.old_datetime_parts(data)) == value


@given(st.integers(0, 2**32 - 1), st.integers(0, 999_999), fsps)
def test_timestamp_round_trip(seconds: int, microseconds: int, fsp: int) -> None:
    microseconds = cut(microseconds, fsp)
    decoded = v.timestamp(seconds.to_bytes(4, "big") + fraction(microseconds, fsp))
    if seconds or microseconds:
        assert decoded == timedelta(seconds=seconds, microseconds=microseconds)
        assert v.old_timestamp(seconds.to_bytes(4, "little")) == (timedelta(seconds=seconds) if seconds else None)
    else:
        assert decoded is None


TIMES = st.timedeltas(-timedelta(hours=839) + MICROSECOND, timedelta(hours=839) - MICROSECOND)


@given(TIMES, fsps)
def test_time_round_trip(value: timedelta, fsp: int) -> None:
    magnitude = cut(abs(value) // MICROSECOND, fsp)
    value = timedelta(microseconds=magnitude) * (-1 if value < timedelta() else 1)
    seconds, microseconds = divmod(magnitude, 10**6)
    size = (fsp + 1) // 2
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    packed = clock << 8 * size | int.from_bytes(fraction(microseconds, fsp), "big")
    packed = (0x800000 << 8 * size) + (-packed if value < timedelta() else packed)
    data = packed.to_bytes(3 + size, "big")

    assert v.time(data) == value
    text = v.format_time(value, fsp)
    assert text.startswith("-") == (value < timedelta())
    hours, minutes, rest = text.lstrip("-").split(":")
    assert timedelta(hours=int(hours), minutes=int(minutes), microseconds=round(float(rest) * 10**6)) == abs(value)


@given(TIMES)
def test_old_time_round_trip(value: timedelta) -> None:
    seconds = int(abs(value).total_seconds())
    number = seconds // 3600 * 10000 + seconds // 60 % 60 * 100 + seconds % 60
    number *= -1 if value < timedelta() else 1
    expected = timedelta(seconds=seconds) * (-1 if value < timedelta() else 1)
    assert v.old_time(number.to_bytes(3, "little", signed=True)) == expected


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (DateTimeParts(0, 0, 0), "0000-00-00"),
        (DateTimeParts(2024, 0, 0), "2024-00-00"),
        (DateTimeParts(2024, 2, 31), "2024-02-31"),
        (DateTimeParts(0, 5, 5), "0000-05-05"),
    ],
)
def test_impossible_dates_have_a_text_and_no_date(parts: DateTimeParts, text: str) -> None:
    assert v.as_date(parts) is None
    assert v.as_datetime(parts) is None
    assert v.format_date(parts) == text
    assert v.format_datetime(parts, 3) == f"{text} 00:00:00.000"


def test_timestamps_as_text_are_utc() -> None:
    assert v.format_timestamp(None, 2) == "0000-00-00 00:00:00.00"
    assert v.format_timestamp(timedelta(seconds=2**32 - 1, microseconds=999_999), 6) == "2106-02-07 06:28:15.999999"


@pytest.mark.parametrize(
    "damaged",
    [
        lambda: v.datetime_parts(bytes.fromhex("99b2bb8efb")),  # 24:59:59
        lambda: v.datetime_parts(bytes.fromhex("99b2bb7efc")[:4] + b"\xfc" + b"\x64"),  # 60 seconds, 100 hundredths
        lambda: v.old_datetime_parts((20240229_236000).to_bytes(8, "little")),
        lambda: v.time(bytes.fromhex("80003f")),
        lambda: v.time(bytes.fromhex("b48000")),  # 840 hours
        lambda: v.old_time((999_9999).to_bytes(3, "little")),
        lambda: v.timestamp(bytes.fromhex("00000001" + "0f4240")),  # a million microseconds
    ],
)
def test_clocks_that_no_clock_shows_are_damage(damaged: object) -> None:
    assert callable(damaged)
    with pytest.raises(ProtocolError):
        damaged()


def test_enum_and_set() -> None:
    labels = tuple(f"l{i}" for i in range(1, 301))
    assert v.enum((300).to_bytes(2, "little"), labels) == "l300"
    assert v.enum(b"\0\0", labels) == ""
    with pytest.raises(ProtocolError, match="301 of an ENUM that has 300"):
        v.enum((301).to_bytes(2, "little"), labels)
    assert v.set_(b"\5", ("a", "b", "c")) == "a,c"
    assert v.set_(b"\0", ("a",)) == ""
    with pytest.raises(ProtocolError, match="SET that has 1 labels"):
        v.set_(b"\2", ("a",))


@given(st.uuids())
def test_uuid_round_trip(value: UUID) -> None:
    assert v.uuid(value.bytes.rstrip(b"\0")) == str(value)


@given(st.integers(0, 2**32 - 1))
def test_inet4_round_trip(number: int) -> None:
    assert v.inet4(number.to_bytes(4, "big").rstrip(b"\0")) == str(IPv4Address(number))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("0000" * 8, "::"),
        ("0000" * 7 + "0001", "::1"),
        ("20010db8" + "0000" * 5 + "0001", "2001:db8::1"),
        ("20010db800000001" + "0001" * 4, "2001:db8::1:1:1:1:1"),
        ("0001" + "0000" * 2 + "0002" + "0000" * 3 + "0003", "1:0:0:2::3"),
        ("0001" + "0000" * 7, "1::"),
        ("0000" * 5 + "ffff01020304", "::ffff:1.2.3.4"),
        ("0000" * 6 + "01020304", "::1.2.3.4"),
        ("ff00" + "".join(f"{i:04x}" for i in range(1, 8)), "ff00:1:2:3:4:5:6:7"),
    ],
)
def test_inet6_is_printed_as_the_server_does(words: str, text: str) -> None:
    assert v.inet6(bytes.fromhex(words).rstrip(b"\0")) == text


def test_padding_puts_back_the_zeros_that_are_not_logged() -> None:
    assert v.padded(b"a\0b", 5) == b"a\0b\0\0"
