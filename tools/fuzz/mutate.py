"""Damage to events: changed bits and bytes, numbers at their limits, pieces cut, doubled, or taken from other events.

Most damage keeps the event's length correct, so that the content is read. One change in 25 changes the length itself.
Compressed contents are damaged inside as often as outside, and compressed again.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import zstandard

from replica.errors import ReplicaError
from replica.protocol.compression import inflate
from replica.protocol.constants import HEADER_LENGTH, EventType
from replica.protocol.header import parse_header
from replica.protocol.mysql.events import Compression, read_transaction_payload
from replica.protocol.rows.rows_event import ROWS_EVENTS
from replica.protocol.wire import Cursor
from tools.fuzz.corpus import relength

if TYPE_CHECKING:
    import random

LIMITS = (0, 1, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
WIDE = (0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def mutate(event: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A damaged copy; `others` are events to take pieces from."""
    kind = event[4]
    if rng.random() < 0.5:
        if kind == EventType.TRANSACTION_PAYLOAD:
            return _payload(event, others, rng)
        if kind in ROWS_EVENTS and ROWS_EVENTS[kind][2]:
            return _rows_block(event, others, rng)
    head, body = event[:HEADER_LENGTH], event[HEADER_LENGTH:]
    body = damaged(body, others, rng)
    if rng.random() < 0.05:
        at = rng.choice((4, 17))  # type, flags
        head = head[:at] + bytes([rng.randrange(256)]) + head[at + 1 :]
    event = relength(head + body)
    if rng.random() < 0.04:
        length = rng.choice((*WIDE[:7], len(event) - 1, len(event) + 1, rng.randrange(64), rng.getrandbits(32)))
        event = event[:9] + (length & 0xFFFFFFFF).to_bytes(4, "little") + event[13:]
    return event


def damaged(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One to four changes."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(found, others, rng)
    return bytes(found)


def _change(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    size = min(rng.choice((1, 1, 2, 3, 4, 8, 16, 64)), len(data) - at)
    match rng.randrange(9):
        case 0 | 1 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 2 if at < len(data):
            data[at] = rng.choice(LIMITS)
        case 3 if at < len(data):
            data[at] = rng.randrange(256)
        case 4:
            width = rng.choice((2, 3, 4, 6, 8))
            number = (rng.choice(WIDE) & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))
            data[at : at + width] = number
        case 5:
            del data[at : at + size]
        case 6:
            data[at:at] = data[at : at + size] * rng.choice((1, 1, 2, 100))
        case 7:
            data[at:at] = rng.randbytes(size)
        case _:
            other = rng.choice(others)[HEADER_LENGTH:]
            start = rng.randrange(len(other) + 1)
            piece = other[start : start + rng.choice((1, 4, 16, 64, 1000))]
            data[at : at + rng.choice((0, len(piece)))] = piece


def _payload(event: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The transaction in it damaged; stored as zstd or plain, with its true size or another."""
    try:
        inner = bytes(read_transaction_payload(parse_header(event), Cursor(event, HEADER_LENGTH)).events())
    except ReplicaError:
        return event
    inner = damaged(inner, others, rng)
    plain = rng.random() < 0.5
    stored = inner if plain else zstandard.ZstdCompressor().compress(inner)
    size = len(inner) if rng.random() < 0.8 else rng.choice(WIDE)
    fields = (1, len(stored)), (2, Compression.NONE if plain else Compression.ZSTD), (3, size)
    head = b"".join(bytes([kind, 9, 0xFE]) + value.to_bytes(8, "little") for kind, value in fields)
    return relength(event[:HEADER_LENGTH] + head + b"\0" + stored)


def _rows_block(event: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The row images damaged and compressed again."""
    for at in range(HEADER_LENGTH + 9, min(len(event), HEADER_LENGTH + 60)):
        try:
            images = bytes(inflate(event[at:]))
        except ReplicaError:
            continue
        images = damaged(images, others, rng)
        size = len(images) if rng.random() < 0.8 else rng.choice(WIDE[:7])
        block = b"\x84" + (size & 0xFFFFFFFF).to_bytes(4, "big") + zlib.compress(images)
        return relength(event[:at] + block)
    return event
