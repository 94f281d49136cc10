r"""Escapes of invisible characters: C1 controls, and marks that change the direction of text or have no width.

In: text, or text as UTF-8. Out: the same with `\u202e` in place of such a character. The code that makes the texts
escapes C0 controls.
"""

from __future__ import annotations

import re
from typing import Final

_UNSEEN: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_UNSEEN_BYTES: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef\xbb\xbf"
)


def visible(text: str) -> str:
    """Return text with these characters escaped, which a terminal obeys instead of showing them."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_bytes(text: bytes | memoryview) -> bytes | memoryview:
    """Return UTF-8 text with these characters escaped. Bytes that are not UTF-8 stay unchanged."""
    if _UNSEEN_BYTES.search(text) is None:
        return text
    return _UNSEEN_BYTES.sub(lambda found: f"\\u{ord(bytes(found[0]).decode()):04x}".encode(), text)
