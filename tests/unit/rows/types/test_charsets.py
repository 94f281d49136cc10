"""The kernels' conversions against the reference's: every character of every set."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest

from replica.errors import ProtocolError
from replica.protocol.charset import CHARSETS, Charset, charset_of
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.types.types import OutputColumn
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, kernel_rows

pa = pytest.importorskip("pyarrow")
# One collation of each set.
COLLATIONS = {
    "armscii8": 32, "ascii": 11, "big5": 1, "cp1250": 26, "cp1251": 51, "cp1256": 57, "cp1257": 59, "cp850": 4,
    "cp852": 40, "cp866": 36, "cp932": 95, "dec8": 3, "eucjpms": 97, "euckr": 19, "gb2312": 24, "gbk": 28,
    "geostd8": 92, "greek": 25, "hebrew": 16, "hp8": 6, "keybcs2": 37, "koi8r": 7, "koi8u": 22, "latin1": 8,
    "latin2": 9, "latin5": 30, "latin7": 41, "macce": 38, "macroman": 39, "sjis": 13, "swe7": 10, "tis620": 18,
    "ucs2": 35, "ujis": 12, "utf16": 54, "utf16le": 56, "utf32": 60, "utf8mb3": 33, "utf8mb4": 45,
}  # fmt: skip


def converted(charset: Charset, texts: list[bytes], invalid_text: Literal["replace", "error"] = "replace") -> list[str]:
    stream = Primary()
    stream.gtid()
    column = Column("c", 252, b"\x04", collation=COLLATIONS[charset.name])
    stream.event(19, table_map(1, [column]))
    stream.event(INSERT, rows(1, 1, b"".join(image([len(t).to_bytes(4, "little") + t]) for t in texts)))
    stream.xid()
    output = [OutputColumn("c", pa.string(), "STRING")]
    decoded = kernel_rows(
        bytes(stream), RangeDecoder(Tables({"d.t": None}), DecodeOptions(invalid_text=invalid_text), output)
    )
    return list(decoded.after[0].to_pylist())


def codes(charset: Charset) -> list[bytes]:
    """All codes of a set that are one character."""
    if charset.codec.startswith("utf"):
        points = [*range(0x20, 0xD800, 7), *range(0xE000, 0x10000, 5)]
        if charset.name not in ("ucs2", "utf8mb3"):
            points += range(0x10000, 0x110000, 4099)
        return [chr(point).encode(charset.codec) for point in points]
    found = [bytes([byte]) for byte in range(256)]
    if charset.max_bytes > 1:
        found += [bytes(pair) for pair in product(range(0x80, 256), range(0x30, 256))]
    if charset.max_bytes > 2:
        found += [bytes((0x8F, *pair)) for pair in product(range(0xA1, 0xFF), repeat=2)]
    return [code for code in found if len(text := charset.decode(code)) == 1 and text != "\ufffd"]


@pytest.mark.parametrize("name", COLLATIONS)
def test_every_character(name: str) -> None:
    charset = CHARSETS[name]
    known = codes(charset)
    assert len(known) > 90
    assert converted(charset, known) == [charset.decode(code) for code in known]
    run = [b"".join(known[i : i + 50]) for i in range(0, len(known), 50)]
    assert converted(charset, run, "error") == [charset.decode(text) for text in run]


def test_every_set_is_tried_here() -> None:
    assert set(COLLATIONS) == set(CHARSETS)
    assert all(charset_of(collation).name == name for name, collation in COLLATIONS.items())


@pytest.mark.parametrize("name", COLLATIONS)
def test_what_is_no_character_becomes_a_replacement_and_ends_nothing(name: str) -> None:
    charset = CHARSETS[name]
    wide = 4 if name == "utf32" else 2 if charset.codec.startswith("utf_") else 1
    a = "a".encode(charset.codec)
    damaged = [b"\xff" * wide, b"\x80" * wide, b"\xd8\x00" * (wide // 2) or b"\x8f", a + b"\x8f", a + b"\x81", b""]
    for text, source in zip(converted(charset, damaged), damaged, strict=True):
        assert text.startswith("a") == source.startswith(a)
        assert len(text) <= len(source)
        assert ("\ufffd" in text) == (not charset.is_valid(source))
        if not charset.is_valid(source):
            with pytest.raises(ProtocolError, match=r"column c of d\.t holds bytes that are not text"):
                converted(charset, [a, source], "error")
