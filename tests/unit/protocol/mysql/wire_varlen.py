"""Numbers as MySQL's serialization library writes them."""

from __future__ import annotations


def unsigned(number: int) -> bytes:
    size = max(1, -(-number.bit_length() // 7))
    if size > 8:
        return b"\xff" + number.to_bytes(8, "little")
    return (number << size | (1 << (size - 1)) - 1).to_bytes(size, "little")


def signed(number: int) -> bytes:
    return unsigned(number << 1 if number >= 0 else ~number << 1 | 1)
