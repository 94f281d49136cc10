"""Whether an event is one that a server sent in place of another, which it thought its replica could not read."""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u2
from replica.rows.scan.kernel_state import HEADER

_QUERY = 2
_USER_VAR = 14
_QUERY_FIXED = 13
# The place of the name's first character in a USER_VAR, and what stands there: the name is "!dummyvar", cut to fit.
_NAME_AT = 4
_MARK = ord("!")
# How the text of a QUERY starts, a little-endian number; the event is as long as the other was, so it may be cut too.
_TEXT = int.from_bytes(b"# Dummy ", "little")


@helper
def is_dummy(kind: int, at: int, end: int) -> bool:
    """`at`: the event's header, `end`: where it ends, before its checksum."""
    body = at + HEADER
    if kind == _USER_VAR:
        return end - body > _NAME_AT and load_u1(body + _NAME_AT) == _MARK
    if kind != _QUERY or end - body <= _QUERY_FIXED:
        return False
    text = body + _QUERY_FIXED + load_u2(body + 11) + load_u1(body + 8) + 1
    if text >= end:
        return False
    for i in range(min(end - text, 8)):  # noqa: SIM110  (numba has no all())
        if load_u1(text + i) != (_TEXT >> (8 * i)) & 0xFF:
            return False
    return True
