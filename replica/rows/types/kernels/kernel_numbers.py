"""Kernels for numbers: integers of any width and byte order, packed DECIMALs, and the server's rounding.

Every function takes addresses that its caller has checked. CORRUPT means bytes that the server never writes.
"""

from __future__ import annotations

import math

import numpy as np

from replica.native.compile import helper
from replica.native.memory import (
    copy,
    load_u1,
    load_u2,
    load_u2be,
    load_u4,
    load_u4be,
    load_u8,
    multiply_add,
    negate,
    store_u8,
)

INVALID = -(1 << 62)  # an invalid date
CORRUPT = INVALID - 1
NO_BRANCH = INVALID - 2  # a kind that the function has no branch for
GROUP = 1_000_000_000  # nine digits, in four bytes
POWERS = np.array([10**digits for digits in range(10)], np.int64)
EXACT_POWERS = np.array([10.0**digits for digits in range(23)], np.float64)  # all powers of ten that a double holds
EXACT_INTEGERS = 9007199254740992.0  # 2^53: doubles hold all integers below it
SPLITTER = 134217729.0  # 2^27 + 1: splits a double's digits in two halves (Dekker 1971)


@helper
def copy_short(target: int, source: int, size: int, readable: int) -> None:
    """Copy `size` bytes, fast for short strings.

    The source must have `readable` bytes, and the target 32 writable bytes even if `size` is less. Most strings are
    short, and a call of memcpy costs as much as decoding a number.
    """
    if size <= 32 <= readable:
        store_u8(target, load_u8(source))
        store_u8(target + 8, load_u8(source + 8))
        store_u8(target + 16, load_u8(source + 16))
        store_u8(target + 24, load_u8(source + 24))
    else:
        copy(target, source, size)


# Without loops, so that LLVM inlines these functions: every string and every DECIMAL needs them.


@helper
def short_little_endian(address: int, size: int) -> int:
    """Read an unsigned little-endian number of 1 to 4 bytes."""
    if size == 1:
        return load_u1(address)
    if size == 2:
        return load_u2(address)
    if size == 3:
        return load_u2(address) | (load_u1(address + 2) << 16)
    return load_u4(address)


@helper
def short_big_endian(address: int, size: int) -> int:
    """Read an unsigned big-endian number of 1 to 4 bytes."""
    if size == 1:
        return load_u1(address)
    if size == 2:
        return load_u2be(address)
    if size == 3:
        return (load_u2be(address) << 8) | load_u1(address + 2)
    return load_u4be(address)


@helper
def big_endian(address: int, size: int) -> int:
    """Read an unsigned big-endian number of 0 to 8 bytes."""
    value = 0
    for i in range(size):
        value = (value << 8) | load_u1(address + i)
    return value


@helper
def little_endian(address: int, size: int) -> int:
    """Read an unsigned little-endian number of 0 to 8 bytes."""
    value = 0
    for i in range(size):
        value |= load_u1(address + i) << (8 * i)
    return value


# A packed DECIMAL is big-endian: left-over digits of the whole part, groups of nine digits, left-over digits of the
# fraction. The first bit is inverted. A negative number has all its bits inverted.
#
# Its shape is one word (see binding.decimal_shape). Bits 0-3: bytes of the whole part's left-over digits. Bits 4-7:
# groups of the whole part. Bits 8-11: groups of the fraction. Bits 12-15: bytes of the fraction's left-over digits.
# Bits 16-47: ten to the number of the whole part's left-over digits. Bits 48 and up: the number of the fraction's.


@helper
def sign_mask(address: int) -> int:
    """Return a word of ones for a negative number, else 0."""
    return -(((load_u1(address) >> 7) & 1) ^ 1)


@helper
def decimal_part(p: int, size: int, flip: int, address: int) -> int:
    """Return the part at `p` of the DECIMAL at `address`, with the inversion undone; the first part holds the sign."""
    value = short_big_endian(p, size) ^ flip
    if p == address:
        value ^= 1 << (8 * size - 1)
    return value & ((1 << (8 * size)) - 1)


@helper
def decimal_small(address: int, shape: int) -> int:
    """Read a packed DECIMAL of at most 18 digits, unscaled; return CORRUPT if a group exceeds its digits."""
    lead = shape & 15
    groups = ((shape >> 4) & 15) + ((shape >> 8) & 15)
    tail = (shape >> 12) & 15
    flip = sign_mask(address)
    p = address
    value = 0
    if lead:
        value = decimal_part(p, lead, flip, address)
        if value >= (shape >> 16) & 0xFFFFFFFF:
            return CORRUPT
        p += lead
    for _ in range(groups):
        group = load_u4be(p) ^ flip
        if p == address:
            group ^= 0x80000000
        group &= 0xFFFFFFFF
        if group >= GROUP:
            return CORRUPT
        value = value * GROUP + group
        p += 4
    if tail:
        scale = POWERS[shape >> 48]
        group = decimal_part(p, tail, flip, address)
        if group >= scale:
            return CORRUPT
        value = value * scale + group
    return -value if flip else value


@helper
def decimal_wide(address: int, shape: int) -> tuple[int, int, bool]:
    """Read a packed DECIMAL of at most 38 digits, unscaled, as (high, low, corrupt)."""
    lead = shape & 15
    groups = ((shape >> 4) & 15) + ((shape >> 8) & 15)
    tail = (shape >> 12) & 15
    flip = sign_mask(address)
    p = address
    high = 0
    low = 0
    corrupt = False
    if lead:
        low = decimal_part(p, lead, flip, address)
        corrupt = low >= (shape >> 16) & 0xFFFFFFFF
        p += lead
    for _ in range(groups):
        group = load_u4be(p) ^ flip
        if p == address:
            group ^= 0x80000000
        group &= 0xFFFFFFFF
        corrupt |= group >= GROUP
        high, low = multiply_add(high, low, GROUP, group)
        p += 4
    if tail:
        scale = POWERS[shape >> 48]
        group = decimal_part(p, tail, flip, address)
        corrupt |= group >= scale
        high, low = multiply_add(high, low, scale, group)
    if flip:
        high, low = negate(high, low)
    return high, low, corrupt


@helper
def rounded(value: float, decimals: int) -> float:
    """Round to at most 22 digits after the point, as the server prints FLOAT(M,D) and DOUBLE(M,D).

    It rounds the exact value of the double, half to even, and returns the double nearest to the resulting digits.
    """
    power = EXACT_POWERS[decimals]
    size = abs(value)
    product = size * power
    if not product < EXACT_INTEGERS:
        return value  # a double of this size has no further digits
    # Exact error of the product.
    split = SPLITTER * size
    high = split - (split - size)
    low = size - high
    split = SPLITTER * power
    power_high = split - (split - power)
    power_low = power - power_high
    error = ((high * power_high - product) + high * power_low + low * power_high) + low * power_low
    whole = int(product)
    beyond = (product - whole - 0.5) + error  # distance from the half
    if beyond > 0.0 or (beyond == 0.0 and whole & 1):
        whole += 1
    elif beyond < -1.0 or (beyond == -1.0 and whole & 1):  # the product was rounded up to `whole`
        whole -= 1
    return math.copysign(whole / power, value)
