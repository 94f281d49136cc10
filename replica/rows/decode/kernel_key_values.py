"""The canonical bytes of one value of a key, from its bytes in a row image: equal values give equal bytes.

Integers sort as their bytes then; all other values are taken as they stand, 00 as 00 FF, with 00 00 behind.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u8, store_u1
from replica.native.record import Record, word

KEY_INTEGER = 1
KEY_BYTES = 2


class KeyColumnRecord(Record):
    """One column of a key, as one table map has it."""

    column = word("its number on the wire")
    form = word("KEY_*")
    size = word("bytes of the canonical form, 0: it depends on the value")
    sign = word("1: a signed integer")


@helper
def key_value(part: int, value: int, size: int, out: int) -> int:
    """Write the canonical bytes of a value to `out`, at most 2 * size + 2; return how many."""
    if load_u8(part + KeyColumnRecord.form) == KEY_INTEGER:
        for i in range(size):
            store_u1(out + i, load_u1(value + size - 1 - i))
        if load_u8(part + KeyColumnRecord.sign):
            store_u1(out, load_u1(out) ^ 0x80)
        return size
    p = out
    for i in range(size):
        byte = load_u1(value + i)
        store_u1(p, byte)
        p += 1
        if byte == 0:
            store_u1(p, 255)
            p += 1
    store_u1(p, 0)
    store_u1(p + 1, 0)
    return p + 2 - out
