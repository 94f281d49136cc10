"""Conversion of character sets for kernels: a kind of text, a parameter, and a table.

The tables are made from the reference decoder, code by code, so that both decoders agree on every character. In damaged
text they may place U+FFFD differently. A table is made once per process and character set, which takes a tenth of a
second for a set of two-byte characters.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import UnsupportedColumnError
from replica.rows.types.kernels.kernel_charsets import PAIRS, REPLACEMENT, THREE_BYTES, TRIPLES, TWO_BYTES
from replica.rows.types.kinds import KIND_MULTIBYTE, KIND_UTF16, KIND_UTF32, Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.protocol.charset import Charset

_UTF16: Final = {"utf_16_be": 0, "utf_16_le": 1}
_SINGLE_SHIFT: Final = 0x8F  # lead byte of the characters of three bytes in EUC-JP


class Conversion(NamedTuple):
    """A character set for kernels.

    Attributes:
        kind: The number that the kernel dispatches on.
        little: 1 for little-endian UTF-16.
        table: uint32 entries, for all sets but UTF-16 and UTF-32.
    """

    kind: int
    little: int = 0
    table: npt.NDArray[np.uint32] | None = None


@cache
def conversion(charset: Charset) -> Conversion:
    """Return the conversion of a character set other than UTF-8."""
    if charset.codec in _UTF16:
        return Conversion(KIND_UTF16, _UTF16[charset.codec])
    if charset.codec == "utf_32_be":
        return Conversion(KIND_UTF32)
    if charset.table is not None:
        return Conversion(Kind.LATIN1, table=np.array([_entry(c) for c in charset.table], np.uint32))
    return Conversion(KIND_MULTIBYTE, table=_multibyte(charset))


def _entry(character: str) -> int:
    text = character.encode()
    if len(text) > 3:
        raise UnsupportedColumnError(f"the character U+{ord(character):X} does not fit into a conversion table")
    return len(text) << 24 | int.from_bytes(text, "little")


def _character(charset: Charset, code: bytes) -> int:
    """Return the table entry of one code, 0 if the code is not a character."""
    text = charset.decode(code)
    return _entry(text) if len(text) == 1 and text != "\ufffd" else 0


def _multibyte(charset: Charset) -> npt.NDArray[np.uint32]:
    table = np.zeros(TRIPLES + (65_536 if charset.max_bytes > 2 else 0), np.uint32)
    for first in range(256):
        single = _character(charset, bytes([first]))
        if single:
            table[first] = single
            continue
        if first == _SINGLE_SHIFT and charset.max_bytes > 2:
            table[first] = THREE_BYTES << 24
            for second in range(0xA1, 0xFF):
                for third in range(0xA1, 0xFF):
                    code = bytes([first, second, third])
                    table[TRIPLES + (second << 8 | third)] = _character(charset, code)
            continue
        pairs = [_character(charset, bytes([first, second])) for second in range(256)]
        place = PAIRS + (first << 8)
        table[place : place + 256] = pairs
        table[first] = TWO_BYTES << 24 if any(pairs) else REPLACEMENT
    return table
