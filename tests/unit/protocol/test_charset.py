from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import UnsupportedColumnError
from replica.protocol.charset import BINARY, CHARSETS, Charset, charset_named, charset_of

SINGLE = [charset for charset in CHARSETS.values() if charset.max_bytes == 1]
MULTI = [charset for charset in CHARSETS.values() if charset.max_bytes > 1]


def test_latin1_is_cp1252_with_five_bytes_passed_through() -> None:
    latin1 = charset_named("latin1")
    data = bytes(range(0x80, 0xA0))
    assert latin1.decode(data) == "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ"  # noqa: RUF001
    assert latin1.decode(bytes(range(0xA0, 0x100))) == "".join(map(chr, range(0xA0, 0x100)))


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("utf8mb4", "f09f9880e282ac", "😀€"),
        ("utf8mb3", "e282ac", "€"),
        ("ascii", "4180", "A\N{REPLACEMENT CHARACTER}"),
        ("cp1251", "cff0e8", "При"),
        ("koi8u", "95a4", "•є"),
        ("swe7", "5b7c", "Äö"),
        ("dec8", "a8d7dd", "¤ŒŸ"),
        ("greek", "a1a2", "ʽʼ"),  # noqa: RUF001
        ("cp866", "fcfd", "ⁿ²"),
        ("hebrew", "afe0", "‾א"),
        ("armscii8", "b2b3", "Աա"),
        ("geostd8", "c0fd", "ა№"),
        ("keybcs2", "8087", "Čč"),
        ("gbk", "c4e3bac3", "你好"),
        ("gb2312", "c4e3", "你"),
        ("big5", "a741f9d6", "你碁"),
        ("euckr", "8141b0a1", "갂가"),
        ("sjis", "815f82a0", "\\あ"),
        ("cp932", "815f8740", "＼①"),  # noqa: RUF001
        ("ujis", "a1c0f5a18ff5a1", "\\\ue000\ue3ac"),
        ("eucjpms", "ada18ff3f38fa2b7a1c1f5a1", "①ⅰ～～\ue000"),  # noqa: RUF001
        ("ucs2", "00e920ac", "é€"),
        ("utf16", "d83dde00", "😀"),
        ("utf16le", "3dd800de", "😀"),
        ("utf32", "0001f600", "😀"),
    ],
)
def test_decode(name: str, data: str, text: str) -> None:
    assert charset_named(name).decode(bytes.fromhex(data)) == text


@pytest.mark.parametrize("charset", SINGLE, ids=lambda c: c.name)
def test_single_byte_sets_have_a_table_of_256_characters(charset: Charset) -> None:
    table = charset.table
    assert len(table) == 256
    assert charset.decode(bytes(range(256))) == table
    assert all(len(character.encode()) <= 3 for character in table)
    # All sets but one agree with ASCII.
    assert charset.name == "swe7" or table[:128] == "".join(map(chr, range(128)))


@pytest.mark.parametrize("charset", MULTI, ids=lambda c: c.name)
def test_multi_byte_sets_have_no_table(charset: Charset) -> None:
    assert charset.table is None


@given(st.sampled_from(list(CHARSETS.values())), st.binary(max_size=40))
def test_no_bytes_stop_a_stream(charset: Charset, data: bytes) -> None:
    assert isinstance(charset.decode(data), str)


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])))
def test_utf8_and_ucs2_agree(text: str) -> None:
    assert charset_named("utf8mb3").decode(text.encode()) == text
    assert charset_named("ucs2").decode(text.encode("utf-16-be")) == text


COLLATIONS = {
    "latin1": (5, 8, 48, 1032),
    "ascii": (11,),
    "utf8mb3": (33, 83, 223, 578, 579, 2048, 2247),
    "utf8mb4": (45, 46, 224, 247, 255, 309, 608, 611, 1270, 2304, 2503),
    "ucs2": (35, 159, 2560),
    "utf16": (54, 2816),
    "utf16le": (56, 62),
    "utf32": (60, 3072, 3271),
    "big5": (1,),
    "gbk": (28,),
}


@pytest.mark.parametrize(("name", "collation"), [(name, i) for name, ids in COLLATIONS.items() for i in ids])
def test_collation_ids(name: str, collation: int) -> None:
    assert charset_of(collation).name == name


def test_what_servers_before_10_6_call_utf8() -> None:
    assert charset_named("utf8") is charset_named("utf8mb3")


@pytest.mark.parametrize("collation", [0, BINARY, 4999])
def test_unknown_collations_are_errors_with_their_number(collation: int) -> None:
    with pytest.raises(UnsupportedColumnError, match=f"collation id {collation} "):
        charset_of(collation)


def test_unknown_character_sets_are_errors_with_their_name() -> None:
    with pytest.raises(UnsupportedColumnError, match="character set klingon"):
        charset_named("klingon")
