"""Events counted by type: one look at each header."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u8

TYPES = 256
COUNT = 0  # of a type: how many events, and how many bytes they take
BYTES = 8
TYPE_BYTES = 16
HEADER = 19


@kernel
def count_types(data: int, spans: int, span_count: int, counts: int) -> int:
    """`spans`: pairs of int64, start and end of whole events. Returns 0, or the offset of what is no event, plus 1."""
    for i in range(span_count):
        at = load_u8(spans + i * 16)
        end = load_u8(spans + i * 16 + 8)
        while at < end:
            if end - at < HEADER:
                return at + 1
            length = load_u4(data + at + 9)
            if length < HEADER or length > end - at:
                return at + 1
            entry = counts + load_u1(data + at + 4) * TYPE_BYTES
            store_u8(entry + COUNT, load_u8(entry + COUNT) + 1)
            store_u8(entry + BYTES, load_u8(entry + BYTES) + length)
            at += length
    return 0
