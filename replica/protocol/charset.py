"""Character sets of the server: from a collation id or name to decoded text.

Most sets agree with a Python codec. The tables of this module hold the differences, which were measured on a server for
every single byte and every lead and trail byte of each set. Bytes that a set does not define become U+FFFD, because a
damaged string must not stop a stream. An unknown collation or set is an UnsupportedColumnError that names it.
"""

# ruff: noqa: RUF001  (the look-alikes are the point of these tables)

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from replica.errors import UnsupportedColumnError

if TYPE_CHECKING:
    from collections.abc import Mapping

BINARY = 63  # the collation id of non-text columns: BINARY, BLOB, GEOMETRY, UUID, INET


@dataclass(frozen=True, slots=True)
class Charset:
    """One character set.

    `codec` is the nearest Python codec. `max_bytes` is the maximum size of one character in bytes.
    """

    name: str
    codec: str
    max_bytes: int = 1

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes are UTF-8 already and need no conversion."""
        return self.codec == "utf-8"

    @property
    def table(self) -> str | None:
        """The 256 characters of a single-byte set, with U+FFFD for undefined bytes. None for multi-byte sets."""
        return _table(self) if self.max_bytes == 1 else None

    def decode(self, data: bytes) -> str:
        if self.max_bytes == 1:
            return data.decode("latin-1").translate(_table(self))
        if self.name == "eucjpms":
            data = data.replace(*_EUCJPMS_TILDE)
        text = data.decode(self.codec, _EXTENDED.get(self.name, "replace"))
        remap = _REMAPPED.get(self.name)
        return text.translate(remap) if remap else text

    def is_valid(self, data: bytes) -> bool:
        """Return True if `data` is valid text of the set, so that `decode` adds no U+FFFD."""
        if not self.codec.startswith("utf"):
            return "\ufffd" not in self.decode(data)
        try:
            data.decode(self.codec)
        except UnicodeDecodeError:
            return False
        return True


CHARSETS: Mapping[str, Charset] = {
    c.name: c
    for c in (
        Charset("armscii8", "latin-1"),
        Charset("ascii", "ascii"),
        Charset("big5", "big5", 2),
        Charset("cp1250", "cp1250"),
        Charset("cp1251", "cp1251"),
        Charset("cp1256", "cp1256"),
        Charset("cp1257", "cp1257"),
        Charset("cp850", "cp850"),
        Charset("cp852", "cp852"),
        Charset("cp866", "cp866"),
        Charset("cp932", "cp932", 2),
        Charset("dec8", "latin-1"),
        Charset("eucjpms", "euc_jp", 3),
        Charset("euckr", "cp949", 2),
        Charset("gb2312", "gb2312", 2),
        Charset("gbk", "gbk", 2),
        Charset("geostd8", "latin-1"),
        Charset("greek", "iso8859_7"),
        Charset("hebrew", "iso8859_8"),
        Charset("hp8", "hp_roman8"),
        Charset("keybcs2", "cp852"),
        Charset("koi8r", "koi8_r"),
        Charset("koi8u", "koi8_u"),
        Charset("latin1", "cp1252"),
        Charset("latin2", "iso8859_2"),
        Charset("latin5", "iso8859_9"),
        Charset("latin7", "iso8859_13"),
        Charset("macce", "mac_latin2"),
        Charset("macroman", "mac_roman"),
        Charset("sjis", "shift_jis", 2),
        Charset("swe7", "ascii"),
        Charset("tis620", "tis_620"),
        Charset("ucs2", "utf_16_be", 2),
        Charset("ujis", "euc_jp", 3),
        Charset("utf16", "utf_16_be", 4),
        Charset("utf16le", "utf_16_le", 4),
        Charset("utf32", "utf_32_be", 4),
        Charset("utf8mb3", "utf-8", 3),
        Charset("utf8mb4", "utf-8", 4),
    )
}

# Collation ids, as SHOW COLLATION lists them in 10.5 to 11.8. The wide ranges are the uca1400 collations.
_COLLATIONS: Mapping[str, tuple[int | range, ...]] = {
    "armscii8": (32, 64, 1056, 1088),
    "ascii": (11, 65, 1035, 1089),
    "big5": (1, 84, 1025, 1108),
    "cp1250": (26, 34, 44, 66, 99, 1050, 1090),
    "cp1251": (14, 23, range(50, 53), 1074, 1075),
    "cp1256": (57, 67, 1081, 1091),
    "cp1257": (29, 58, 59, 1082, 1083),
    "cp850": (4, 80, 1028, 1104),
    "cp852": (40, 81, 1064, 1105),
    "cp866": (36, 68, 1060, 1092),
    "cp932": (95, 96, 1119, 1120),
    "dec8": (3, 69, 1027, 1093),
    "eucjpms": (97, 98, 1121, 1122),
    "euckr": (19, 85, 1043, 1109),
    "gb2312": (24, 86, 1048, 1110),
    "gbk": (28, 87, 1052, 1111),
    "geostd8": (92, 93, 1116, 1117),
    "greek": (25, 70, 1049, 1094),
    "hebrew": (16, 71, 1040, 1095),
    "hp8": (6, 72, 1030, 1096),
    "keybcs2": (37, 73, 1061, 1097),
    "koi8r": (7, 74, 1031, 1098),
    "koi8u": (22, 75, 1046, 1099),
    "latin1": (5, 8, 15, 31, range(47, 50), 94, 1032, 1071),
    "latin2": (2, 9, 21, 27, 77, 1033, 1101),
    "latin5": (30, 78, 1054, 1102),
    "latin7": (20, 41, 42, 79, 1065, 1103),
    "macce": (38, 43, 1062, 1067),
    "macroman": (39, 53, 1063, 1077),
    "sjis": (13, 88, 1037, 1112),
    "swe7": (10, 82, 1034, 1106),
    "tis620": (18, 89, 1042, 1113),
    "ucs2": (35, 90, range(128, 152), 159, range(640, 672), 1059, 1114, 1152, 1174, range(2560, 2816)),
    "ujis": (12, 91, 1036, 1115),
    "utf16": (54, 55, range(101, 125), range(672, 704), 1078, 1079, 1125, 1147, range(2816, 3072)),
    "utf16le": (56, 62, 1080, 1086),
    "utf32": (60, 61, range(160, 184), range(736, 768), 1084, 1085, 1184, 1206, range(3072, 3328)),
    "utf8mb3": (33, 83, range(192, 216), 223, range(576, 608), 1057, 1107, 1216, 1238, range(2048, 2304)),
    # 255 to 309 are MySQL's utf8mb4_0900 collations, which 11.4 and newer know as aliases.
    "utf8mb4": (45, 46, range(224, 248), range(255, 324), range(608, 640), 1069, 1070, 1248, 1270, range(2304, 2560)),
}

_CHARSET_OF: Mapping[int, Charset] = {
    collation: CHARSETS[name]
    for name, ids in _COLLATIONS.items()
    for collation in chain.from_iterable((i,) if isinstance(i, int) else i for i in ids)
}

_ALIASES: Mapping[str, str] = {"utf8": "utf8mb3"}  # the name of the set on servers before 10.6

# Single-byte sets: their differences from the Python codec.
_GEORGIAN = "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"
_ARMENIAN = "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
_KAMENICKY = (
    "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
    "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
)


def _without(*undefined: int) -> dict[int, str]:
    return dict.fromkeys(undefined, "\ufffd")


_DIFFERS: Mapping[str, Mapping[int, str]] = {
    "armscii8": dict(enumerate(_ARMENIAN, 0xA1)),
    "cp1256": _without(0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF),
    "cp866": {0xFC: "ⁿ", 0xFD: "²"},
    "dec8": _without(0xA4, 0xA6, 0xAC, 0xAD, 0xAE, 0xAF, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF)
    | {0xA8: "¤", 0xD7: "Œ", 0xDD: "Ÿ", 0xF7: "œ", 0xFD: "ÿ"},
    "geostd8": _without(*range(0x80, 0xA0), *range(0xE6, 0x100))
    | dict(zip(b"\x80\x82\x84\x85\x86\x87\x89\x8b\x91\x92\x93\x94\x95\x96\x97\x9b", "€‚„…†‡‰‹‘’“”•–—›", strict=True))
    | dict(enumerate(_GEORGIAN, 0xC0))
    | {0xFD: "№"},
    "greek": _without(0xA4, 0xA5, 0xAA) | {0xA1: "ʽ", 0xA2: "ʼ"},
    "hebrew": {0xAF: "‾"},
    "keybcs2": dict(enumerate(_KAMENICKY, 0x80)),
    "koi8u": {0x95: "•"},
    # latin1 is cp1252, and the five bytes that cp1252 leaves undefined pass through.
    "latin1": {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "swe7": dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü\ufffd", strict=True)),
}


@cache
def _table(charset: Charset) -> str:
    codec = bytes(range(256)).decode(charset.codec, "replace")
    differs = _DIFFERS.get(charset.name, {})
    return "".join(differs.get(byte, character) for byte, character in enumerate(codec))


# Multi-byte sets: characters that the codec lacks, and characters to which the server gives another code point.
_NEC_ROW_13 = (
    "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡"
    "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪"
)
_IBM_EXTENSIONS = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ"
    "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨"
    "\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶"
    "\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑"
)


def _rows_94(first: bytes, text: str) -> dict[bytes, str]:
    """Map consecutive codes of a 94 by 94 plane (trail bytes a1 to fe) to the characters of `text`, from `first` on."""
    *plane, row, cell = first
    start = (row - 0xA1) * 94 + cell - 0xA1
    return {bytes((*plane, 0xA1 + i // 94, 0xA1 + i % 94)): c for i, c in enumerate(text, start)}


_USER_DEFINED = "".join(map(chr, range(0xE000, 0xE000 + 10 * 94)))
_USER_DEFINED_2 = "".join(map(chr, range(0xE3AC, 0xE3AC + 10 * 94)))
_UJIS = _rows_94(b"\xf5\xa1", _USER_DEFINED) | _rows_94(b"\x8f\xf5\xa1", _USER_DEFINED_2)
_EUCJPMS = (
    _UJIS
    | _rows_94(b"\x8f\xf3\xf3", _IBM_EXTENSIONS)
    | dict(
        zip(
            (
                bytes((0xAD, cell))
                for cell in (*range(0xA1, 0xB5), *range(0xB5, 0xBF), *range(0xC0, 0xD7), *range(0xDF, 0xFD))
            ),
            _NEC_ROW_13,
            strict=True,
        )
    )
)


def _extension(name: str, extra: Mapping[bytes, str]) -> str:
    """Register a decoding error handler that decodes the codes in `extra`, and return the handler's name."""

    def resume(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        for size in (3, 2):
            code = error.object[error.start : error.start + size]
            if code in extra:
                return extra[code], error.start + len(code)
        return "\ufffd", error.end

    handler = f"mariadb-{name}"
    codecs.register_error(handler, resume)
    return handler


_EXTENDED: Mapping[str, str] = {
    "big5": _extension("big5", dict(zip((bytes((0xF9, b)) for b in range(0xD6, 0xDD)), "碁銹裏墻恒粧嫺", strict=True))),
    "eucjpms": _extension("eucjpms", _EUCJPMS),
    "ujis": _extension("ujis", _UJIS),
}
_REMAPPED: Mapping[str, Mapping[int, int]] = {
    "eucjpms": str.maketrans("〜‖−¢£¬¦", "～∥－￠￡￢￤"),
    "sjis": str.maketrans("＼", "\\"),
    "ujis": str.maketrans("＼", "\\"),
}
# eucjpms has two codes for the same tilde. 0x8F occurs only as a lead byte, so the replacement cuts no code in two.
_EUCJPMS_TILDE = (b"\x8f\xa2\xb7", b"\xa1\xc1")


def charset_of(collation: int) -> Charset:
    """Return the character set of a collation id. BINARY has none.

    Raises:
        UnsupportedColumnError: the id is unknown, or is BINARY.
    """
    charset = _CHARSET_OF.get(collation)
    if charset is None:
        raise UnsupportedColumnError(
            f"The collation id {collation} belongs to no known character set.",
            hint="Report it together with the server's version.",
        )
    return charset


def labels_charset(collation: int) -> Charset:
    """Return the character set of the labels of an ENUM or SET column.

    A column with the character set `binary` (collation 63) has labels in UTF-8, as in its CREATE statement.
    """
    return CHARSETS["utf8mb4"] if collation == BINARY else charset_of(collation)


def collation_in(name: str) -> int:
    """Return the id of one collation of a character set, by the set's name in information_schema or `binary`."""
    if name == "binary":
        return BINARY
    first = _COLLATIONS[charset_named(name).name][0]
    return first if isinstance(first, int) else first[0]


def charset_key(name: str | None) -> str | None:
    """Return the name of a character set that is the same in all server versions. None stays None."""
    return None if name is None else _ALIASES.get(name, name)


def charset_named(name: str) -> Charset:
    """Return the character set that information_schema calls `name`.

    Raises:
        UnsupportedColumnError: the name is unknown.
    """
    charset = CHARSETS.get(charset_key(name) or name)
    if charset is None:
        raise UnsupportedColumnError(
            f"The character set {name} is not known.", hint="Report it together with the server's version."
        )
    return charset
