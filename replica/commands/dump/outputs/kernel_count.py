"""Kernel that counts events by type, from their headers."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_group import event_length, event_type, is_whole
from replica.native.memory import load_u8, store_u8
from replica.native.record import Record, word

TYPES = 256


class TypeCount(Record):
    """The events of one type."""

    events = word("how many")
    size = word("bytes that they take")


class SpanRecord(Record):
    """Consecutive whole events."""

    start = word("offset of the first")
    end = word("offset after the last")


@kernel
def count_types(data: int, spans: int, span_count: int, counts: int) -> int:
    """Count the events of each type.

    `spans` is the address of SpanRecords, `counts` of TypeCounts. Return 0, or the offset of bytes that are no event
    plus 1.
    """
    for i in range(span_count):
        at = load_u8(spans + i * SpanRecord.BYTES + SpanRecord.start)
        end = load_u8(spans + i * SpanRecord.BYTES + SpanRecord.end)
        while at < end:
            if not is_whole(data + at, end - at, 0):
                return at + 1
            length = event_length(data + at)
            entry = counts + event_type(data + at) * TypeCount.BYTES
            store_u8(entry + TypeCount.events, load_u8(entry + TypeCount.events) + 1)
            store_u8(entry + TypeCount.size, load_u8(entry + TypeCount.size) + length)
            at += length
    return 0
