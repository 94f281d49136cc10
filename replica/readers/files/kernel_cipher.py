"""Kernels around AES that decrypt many events in one call: blocks from events, and plain events from blocks.

The server encrypts each event as a separate message (`event_encrypt` in its log writer). The length stays readable in
bytes 9 to 12, and the four encrypted bytes of that place are in bytes 0 to 3. The message is bytes 4 to the end, after
these four bytes are moved back. CBC needs the inverse cipher over all whole blocks, CTR the cipher over counters. Both
are one ECB call over the blocks of many events, and an exclusive-or, which these kernels do.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import event_length, event_type
from replica.native.memory import copy, load_u1, load_u4, load_u8, store_u1, store_u4, store_u8
from replica.native.record import Record, word
from replica.protocol.constants import LENGTH_AT, EventType

BLOCK = 16
DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
MESSAGE_AT = 4


class GatherResult(Record):
    """Counts of the result of `gather`."""

    events = word("whole events")
    consumed = word("bytes that they take")
    blocks = word("blocks to encrypt")


@helper
def _swap(value: int) -> int:
    """Reverse the bytes of a 64-bit number."""
    swapped = 0
    for i in range(8):
        swapped |= ((value >> (8 * i)) & 0xFF) << (56 - 8 * i)
    return swapped


@helper
def _put_iv(target: int, nonce: int, offset: int) -> None:
    copy(target, nonce, 12)
    store_u4(target + 12, offset)


@kernel
def gather(
    raw: int,
    size: int,
    offset: int,
    nonce: int,
    counters: int,
    least: int,
    out: int,
    blocks: int,
    ivs: int,
    events_capacity: int,
    result: int,
) -> int:
    """Copy the whole events at the start of `raw` to `out`, as contiguous messages, and write the blocks for AES.

    `offset` is the file offset of raw[0], `least` the minimal length of an event; `counters` is 1 for CTR. It stops
    before an event that is incomplete or has an impossible length.
    """
    done = 0
    events = 0
    count = 0
    while events < events_capacity and size - done >= least:
        length = event_length(raw + done)
        if length < least or length > size - done:
            break
        event = out + done
        copy(event, raw + done, length)
        copy(event + LENGTH_AT, raw + done, 4)
        _put_iv(ivs + events * BLOCK, nonce, offset + done)
        message = length - MESSAGE_AT
        whole = message // BLOCK
        if counters:
            high = _swap(load_u8(ivs + events * BLOCK))
            low = _swap(load_u8(ivs + events * BLOCK + 8))
            for _ in range((message + BLOCK - 1) // BLOCK):
                store_u8(blocks + count * BLOCK, _swap(high))
                store_u8(blocks + count * BLOCK + 8, _swap(low))
                count += 1
                low += 1
                if low == 0:
                    high += 1
        else:
            copy(blocks + count * BLOCK, event + MESSAGE_AT, whole * BLOCK)
            count += whole
        done += length
        events += 1
    store_u8(result + GatherResult.events, events)
    store_u8(result + GatherResult.consumed, done)
    store_u8(result + GatherResult.blocks, count)
    return events


@helper
def _xor_block(target: int, left: int, right: int) -> None:
    low = load_u8(left) ^ load_u8(right)
    high = load_u8(left + 8) ^ load_u8(right + 8)
    store_u8(target, low)
    store_u8(target + 8, high)


@kernel
def scatter(raw: int, events: int, counters: int, out: int, blocks: int, ivs: int, tails: int) -> int:
    """Decrypt the messages that `gather` copied to `out`: `blocks` are those after AES, `tails` the encrypted IVs
    (CBC).
    """
    done = 0
    count = 0
    for number in range(events):
        event = out + done
        length = event_length(raw + done)
        message = event + MESSAGE_AT
        whole = (length - MESSAGE_AT) // BLOCK
        rest = (length - MESSAGE_AT) % BLOCK
        tail = tails + number * BLOCK
        if counters:
            for i in range(whole):
                _xor_block(message + i * BLOCK, message + i * BLOCK, blocks + (count + i) * BLOCK)
            tail = blocks + (count + whole) * BLOCK
            if rest:
                count += 1
        else:
            for i in range(whole - 1, 0, -1):  # backwards: a block needs the encrypted previous block
                _xor_block(message + i * BLOCK, message + (i - 1) * BLOCK, blocks + (count + i) * BLOCK)
            if whole:
                _xor_block(message, ivs + number * BLOCK, blocks + count * BLOCK)
        for i in range(rest):
            place = message + whole * BLOCK + i
            store_u1(place, load_u1(place) ^ load_u1(tail + i))
        copy(event, event + LENGTH_AT, 4)
        store_u4(event + LENGTH_AT, length)
        count += whole
        done += length
    return done


@kernel
def first_notable(out: int, size: int, trailer: int) -> int:
    """Return the offset of the first event with a wrong checksum, or of the first FORMAT_DESCRIPTION; -1 for none."""
    done = 0
    while done < size:
        length = event_length(out + done)
        if event_type(out + done) == DESCRIPTION:
            return done
        if trailer and load_u4(out + done + length - trailer) != crc32(out + done, length - trailer, 0):
            return done
        done += length
    return -1
