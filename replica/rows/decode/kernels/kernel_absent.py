"""Kernel that numbers the distinct column choices of rows events: events are many, column choices few."""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u4
from replica.rows.scan.records import EventRecord

FNV_OFFSET = 0x2BF29CE484222325
FNV_PRIME = 0x100000001B3


@helper
def same_choice(data: int, event: int, other: int, field: int) -> bool:
    """Return True if two events have one table map and the same bits in the bitmap at `field`."""
    width = load_u8(event + EventRecord.width)
    if load_u8(event + EventRecord.slot) != load_u8(other + EventRecord.slot) or width != load_u8(
        other + EventRecord.width
    ):
        return False
    left = data + load_u8(event + field)
    right = data + load_u8(other + field)
    i = 0
    size = (width + 7) >> 3
    while i < size and load_u1(left + i) == load_u1(right + i):
        i += 1
    return i == size


@kernel
def number_choices(data: int, events: int, count: int, field: int, out: int, table: int, mask: int, firsts: int) -> int:
    """Give each distinct (table map, bitmap) pair of partial events a number; return how many there are.

    `field`: EventRecord.before or .after. `out`: int32 per event, the number of its pair, -1 if the event is whole.
    `firsts`: int32 per pair, the number of its first event. `table`: `mask` + 1 int32 zeros, more than there are
    events.
    """
    found = 0
    for number in range(count):
        event = events + number * EventRecord.BYTES
        if load_u8(event + EventRecord.whole):
            store_u4(out + number * 4, -1)
            continue
        bitmap = data + load_u8(event + field)
        value = FNV_OFFSET ^ load_u8(event + EventRecord.slot)
        for i in range((load_u8(event + EventRecord.width) + 7) >> 3):
            value = (value ^ load_u1(bitmap + i)) * FNV_PRIME
        place = (value ^ (value >> 32)) & mask
        while True:
            entry = load_u4(table + place * 4)
            if entry == 0:
                store_u4(table + place * 4, found + 1)
                store_u4(firsts + found * 4, number)
                store_u4(out + number * 4, found)
                found += 1
                break
            if same_choice(data, event, events + load_u4(firsts + (entry - 1) * 4) * EventRecord.BYTES, field):
                store_u4(out + number * 4, entry - 1)
                break
            place = (place + 1) & mask
    return found
