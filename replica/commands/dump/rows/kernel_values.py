# ruff: noqa: PLR0911, PLR1714  (one return a type; numba has no sets)
"""Kernel helpers that write one VARIANT value as text: as JSON, as an SQL literal, or for people.

Floats are not written but noted. Arrow makes their shortest decimal texts afterwards, for a whole batch at once.
"""

from __future__ import annotations

from replica.commands.dump.rows.kernel_text import (
    JSON,
    SQL,
    escaped_size,
    put_decimal,
    put_digits,
    put_hex,
    put_number,
    put_text,
)
from replica.native.compile import helper
from replica.native.memory import (
    load_i1,
    load_i2,
    load_i4,
    load_u1,
    load_u4,
    load_u8,
    store_u1,
    store_u2,
    store_u4,
    store_u8,
)
from replica.native.record import Record, word
from replica.rows.types.kernels.kernel_charsets import is_utf8
from replica.rows.types.kernels.kernel_numbers import copy_short

# Effect of a column's declaration on the text of its values.
STYLE_NONE = 0
STYLE_YEAR = 1  # four digits; text in JSON, as every point in time
STYLE_GUESS = 2  # text or bytes, which is unknown: text if it is valid UTF-8
STYLE_GUESS_PADDED = 3  # the same for CHAR or BINARY: as text without the padding zeros of BINARY


class NoteRecord(Record):
    """One noted float."""

    place = word("where its text goes in the output")
    bits = word("its bits")
    kind = word("NOTE_*: how they are to be read")


NOTE_DOUBLE = 0
NOTE_FLOAT = 1
NOTE_FLOAT_AS_DOUBLE = 2  # all digits of the double that equals the FLOAT, so that `=` finds it in SQL

SLACK = 32  # bytes after the text, and after each piece of a template: short copies move whole words
FIXED_ROOM = 96  # the longest text of a value that is neither text nor bytes: a DECIMAL is composed in 64
LONG_TEXT = 4096  # above, characters that need an escape are counted before space is reserved for the text
MOST_PER_BYTE = 6  # JSON's escape of a control character: \\u001f
NOWHERE = 0  # no address: the end of the text of a value that no column can have
EXACT_IN_JSON = 1 << 53  # readers of JSON treat numbers as doubles, which hold integers up to here


def ascii_word(text: bytes) -> int:
    """Return up to 8 ASCII characters as the integer whose store writes them."""
    return int.from_bytes(text, "little")


_JSON_NULL = ascii_word(b"null")
_SQL_NULL = ascii_word(b"NULL")
_JSON_HEX = ascii_word(b'{"hex":"')
_JSON_HEX_END = ascii_word(b'"}')
_SQL_HEX = ascii_word(b"X'")


@helper
def text_at(p: int) -> tuple[int, int]:
    """Return (address, size) of text or bytes."""
    head = load_u1(p)
    if head & 3 == 1:
        return p + 1, head >> 2
    return p + 5, load_u4(p + 1)


@helper
def array_at(p: int) -> tuple[int, int]:
    """Return (address of the values, count) of an array of numbers of one size."""
    head = load_u1(p) >> 2
    width = (head & 3) + 1
    if head & 4:
        count = load_u4(p + 1)
        return p + 5 + (count + 1) * width, count
    count = load_u1(p + 1)
    return p + 2 + (count + 1) * width, count


@helper
def value_room(p: int, notation: int, style: int) -> int:
    """Return the maximum size of a value's text in bytes; -1 for a value that no column can have."""
    head = load_u1(p)
    basic = head & 3
    if basic == 1 or head == 16 << 2 or head == 15 << 2:
        _, size = text_at(p)
        if size <= LONG_TEXT:
            return size * MOST_PER_BYTE + 16
        room = 16
        if head == 16 << 2 or style >= STYLE_GUESS:
            room += escaped_size(p + 5, size, notation)
        if head == 15 << 2:
            room += size * 2
        return room
    if basic == 3:
        _, count = array_at(p)
        return count * 8 + 16
    return FIXED_ROOM if basic == 0 else -1


@helper
def value_notes(p: int) -> int:
    """Return the number of floats in a value."""
    head = load_u1(p)
    if head & 3 == 3:
        _, count = array_at(p)
        return count
    return 1 if head == 7 << 2 or head == 14 << 2 else 0


@helper
def put_note(note: int, place: int, bits: int, kind: int) -> int:
    store_u8(note + NoteRecord.place, place)
    store_u8(note + NoteRecord.bits, bits)
    store_u8(note + NoteRecord.kind, kind)
    return note + NoteRecord.BYTES


@helper
def put_integer(q: int, value: int, notation: int, style: int) -> int:
    quoted = notation == JSON and (style == STYLE_YEAR or value > EXACT_IN_JSON or value < -EXACT_IN_JSON)
    if quoted:
        store_u1(q, 34)
        q += 1
    q = put_digits(q, value, 4) if style == STYLE_YEAR else put_number(q, value)
    if quoted:
        store_u1(q, 34)
        q += 1
    return q


@helper
def put_value(q: int, p: int, notation: int, style: int, note: int, out: int) -> tuple[int, int]:
    """Write the value at `p`, and return the ends of text and notes.

    `value_room` and `value_notes` give the space it needs.
    """
    head = load_u1(p)
    basic = head & 3
    kind = head >> 2
    if basic == 1 or (basic == 0 and kind == 16):
        start, size = text_at(p)
        return put_text(q, start, size, notation), note
    if basic == 3:
        start, count = array_at(p)
        if notation == SQL:
            store_u2(q, _SQL_HEX)
            q += 2
            for i in range(count):
                q = put_hex(q, start + i * 5 + 1, 4)
            store_u1(q, 39)
            return q + 1, note
        store_u1(q, 91)
        q += 1
        for i in range(count):
            if i:
                store_u1(q, 44)
                q += 1
            note = put_note(note, q - out, load_u4(start + i * 5 + 1), NOTE_FLOAT)
        store_u1(q, 93)
        return q + 1, note
    if kind == 0:
        store_u4(q, _JSON_NULL if notation == JSON else _SQL_NULL)
        return q + 4, note
    if kind == 3:
        return put_integer(q, load_i1(p + 1), notation, style), note
    if kind == 4:
        return put_integer(q, load_i2(p + 1), notation, style), note
    if kind == 5:
        return put_integer(q, load_i4(p + 1), notation, style), note
    if kind == 6:
        return put_integer(q, load_u8(p + 1), notation, style), note
    if kind == 7:
        return q, put_note(note, q - out, load_u8(p + 1), NOTE_DOUBLE)
    if kind == 14:
        return q, put_note(note, q - out, load_u4(p + 1), NOTE_FLOAT_AS_DOUBLE if notation == SQL else NOTE_FLOAT)
    if kind == 15:
        size = load_u4(p + 1)
        if style >= STYLE_GUESS:
            shown = size
            while style == STYLE_GUESS_PADDED and shown and load_u1(p + 4 + shown) == 0:
                shown -= 1
            if is_utf8(p + 5, shown):
                return put_text(q, p + 5, shown, notation), note
        if notation == JSON:
            store_u8(q, _JSON_HEX)
            q = put_hex(q + 8, p + 5, size)
            store_u2(q, _JSON_HEX_END)
            return q + 2, note
        store_u2(q, _SQL_HEX)
        q = put_hex(q + 2, p + 5, size)
        store_u1(q, 39)
        return q + 1, note
    if kind < 8 or kind > 10:
        return NOWHERE, note
    # DECIMAL in 4, 8 or 16 bytes.
    if notation == JSON:
        store_u1(q, 34)
        q += 1
    q = put_decimal(q, p + 2, 4 if kind == 8 else 8 if kind == 9 else 16, load_u1(p + 1))
    if notation == JSON:
        store_u1(q, 34)
        q += 1
    return q, note


@helper
def put_bytes(q: int, record: int) -> int:
    """Copy a piece of a template, whose TemplatePiece is at `record`. SLACK bytes after the piece can be read."""
    size = load_u8(record + 8)
    copy_short(q, load_u8(record), size, SLACK)
    return q + size
