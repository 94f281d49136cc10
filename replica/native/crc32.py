"""CRC-32 of the binlog (zlib's polynomial, reflected), callable from kernels: `crc32(address, length, crc)`.

`crc` is the CRC so far, 0 to start; results equal those of zlib.crc32. If the CPU has carry-less multiplication
(PCLMULQDQ), 64 bytes are folded at a time. Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using
PCLMULQDQ", Intel 2009. The bytes that do not fill a register come first, after zeros: most events are short, and tables
would take half of their time. Other CPUs, and data below 16 bytes, use tables with steps of eight bytes.

`checksum` is the same for bytes of Python, three times as fast as zlib for large data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llvmlite.binding
import numpy as np
from llvmlite import ir

from replica.native.arrays import address
from replica.native.compile import Intrinsic, helper, kernel
from replica.native.memory import load_u1, load_u8

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

_POLYNOMIAL = 0xEDB88320
_MASK32 = 0xFFFFFFFF

# Remainders of powers of x, for the reflected polynomial: by 64 bytes, by 16 bytes, the last fold, and Barrett's pair.
_FOLD_64 = (0x0154442BD4, 0x01C6E41596)
_FOLD_16 = (0x01751997D0, 0x00CCAA009E)
_FOLD_8 = 0x0163CD6124
_BARRETT = (0x01DB710641, 0x01F7011641)

WIDE_MINIMUM = 64  # bytes of four registers, which in parallel hide the multiplier's latency

HAS_PCLMUL = bool(llvmlite.binding.get_host_cpu_features().get("pclmul"))


def _make_tables() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Make eight tables of 256 entries: table k advances a byte at k bytes before the end of an eight-byte step."""
    tables = np.zeros(8 * 256, np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[byte] = crc
    for index in range(256, 8 * 256):
        previous = int(tables[index - 256])
        tables[index] = (previous >> 8) ^ tables[previous & 0xFF]
    return tables


_TABLES = _make_tables()

_I8, _I32, _I64, _I128 = (ir.IntType(n) for n in (8, 32, 64, 128))
_PAIR = ir.VectorType(_I64, 2)


class _Folder:
    """Writer of the folding loop in LLVM's intermediate representation: `self.b` is the builder, a `_PAIR` is a
    register.

    It is used once per number of registers.
    """

    def __init__(self, builder: Any) -> None:
        self.b = builder
        self.clmul = builder.module.declare_intrinsic(
            "llvm.x86.pclmulqdq", fnty=ir.FunctionType(_PAIR, [_PAIR, _PAIR, _I8])
        )

    def pair(self, low: int, high: int) -> Any:
        return ir.Constant(_PAIR, [low, high])

    def load(self, address: Any, offset: int) -> Any:
        pointer = self.b.inttoptr(self.b.add(address, ir.Constant(_I64, offset)), _PAIR.as_pointer())
        return self.b.load(pointer, align=1)

    def multiply(self, left: Any, right: Any, select: int) -> Any:
        return self.b.call(self.clmul, [left, right, ir.Constant(_I8, select)])

    def fold(self, register: Any, constants: Any, into: Any) -> Any:
        low, high = self.multiply(register, constants, 0x00), self.multiply(register, constants, 0x11)
        return self.b.xor(self.b.xor(low, high), into)

    def odd_bytes(self, address: Any, count: Any, crc: Any) -> tuple[Any, Any]:
        """Return a register with the first `count` bytes (0 to 15) and `crc`, and the part of `crc` for the next
        register.

        The bytes follow zeros, which do not change the remainder.
        """
        b = self.b
        start = b.insert_element(self.pair(0, 0), crc, ir.Constant(_I32, 0))
        wide = b.bitcast(b.xor(self.load(address, 0), start), _I128)
        # Each shift in two halves, because LLVM does not define a shift by all bits.
        half = b.shl(count, ir.Constant(_I64, 2))
        other = b.zext(b.sub(ir.Constant(_I64, 64), half), _I128)
        rest = b.insert_element(self.pair(0, 0), b.lshr(b.lshr(crc, half), half), ir.Constant(_I32, 0))
        return b.bitcast(b.shl(b.shl(wide, other), other), _PAIR), rest

    def loop(self, address: Any, length: Any, registers: list[Any], constants: Any) -> tuple[Any, Any, list[Any]]:
        """Fold blocks of 16 bytes per register while `length` holds a whole block; return the remaining state."""
        b, step = self.b, 16 * len(registers)
        before, head = b.block, b.append_basic_block("fold.head")
        body, after = b.append_basic_block("fold.body"), b.append_basic_block("fold.after")
        b.branch(head)
        b.position_at_end(head)
        phis = [b.phi(v.type) for v in (address, length, *registers)]
        for phi, value in zip(phis, (address, length, *registers), strict=True):
            phi.add_incoming(value, before)
        b.cbranch(b.icmp_signed(">=", phis[1], ir.Constant(_I64, step)), body, after)
        b.position_at_end(body)
        folded = [self.fold(r, constants, self.load(phis[0], 16 * i)) for i, r in enumerate(phis[2:])]
        moved = [b.add(phis[0], ir.Constant(_I64, step)), b.sub(phis[1], ir.Constant(_I64, step)), *folded]
        for phi, value in zip(phis, moved, strict=True):
            phi.add_incoming(value, b.block)
        b.branch(head)
        b.position_at_end(after)
        return phis[0], phis[1], phis[2:]

    def reduce(self, register: Any) -> Any:
        """Reduce 128 bits to the 32 of the CRC: one fold by eight bytes, one by four, then Barrett's division."""
        b = self.b
        low_word = self.pair(_MASK32, 0)
        by_eight = self.multiply(register, self.pair(*_FOLD_16), 0x10)
        register = b.xor(self._shift(register, 64), by_eight)
        by_four = self.multiply(b.and_(register, low_word), self.pair(_FOLD_8, 0), 0x00)
        register = b.xor(self._shift(register, 32), by_four)
        quotient = self.multiply(b.and_(register, low_word), self.pair(*_BARRETT), 0x10)
        product = self.multiply(b.and_(quotient, low_word), self.pair(*_BARRETT), 0x00)
        words = b.bitcast(b.xor(register, product), ir.VectorType(_I32, 4))
        return b.zext(b.extract_element(words, ir.Constant(_I32, 1)), _I64)

    def _shift(self, register: Any, bits: int) -> Any:
        wide = self.b.bitcast(register, _I128)
        return self.b.bitcast(self.b.lshr(wide, ir.Constant(_I128, bits)), _PAIR)


def _make_fold(registers: int) -> Any:
    """Make the intrinsic that returns the inverted CRC `crc` over `length` bytes, at least 16 for each register."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001  (numba's signature)
        folder = _Folder(builder)
        address, length, crc = args
        by_16 = folder.pair(*_FOLD_16)
        odd = builder.and_(length, ir.Constant(_I64, 15))
        first, rest = folder.odd_bytes(address, odd, crc)
        address = builder.add(address, odd)
        side_by_side = [folder.load(address, 16 * i) for i in range(registers)]
        side_by_side[0] = builder.xor(folder.fold(first, by_16, side_by_side[0]), rest)
        address = builder.add(address, ir.Constant(_I64, 16 * registers))
        length = builder.sub(length, builder.add(odd, ir.Constant(_I64, 16 * registers)))
        if registers > 1:
            address, length, side_by_side = folder.loop(address, length, side_by_side, folder.pair(*_FOLD_64))
        one = side_by_side[0]
        for register in side_by_side[1:]:
            one = folder.fold(one, by_16, register)
        _, _, [one] = folder.loop(address, length, [one], by_16)
        return folder.reduce(one)

    return Intrinsic(build, "int64", "int64", "int64", "int64")


_fold_one, _fold_four = _make_fold(1), _make_fold(4)


@helper
def table_crc32(address: int, length: int, crc: int) -> int:
    """Compute the CRC-32 of `length` bytes at `address`, continuing `crc`, with tables, eight bytes per step."""
    crc = crc ^ _MASK32
    end = address + length
    while address + 8 <= end:
        word = load_u8(address) ^ crc
        crc = (
            _TABLES[1792 + (word & 0xFF)]
            ^ _TABLES[1536 + ((word >> 8) & 0xFF)]
            ^ _TABLES[1280 + ((word >> 16) & 0xFF)]
            ^ _TABLES[1024 + ((word >> 24) & 0xFF)]
            ^ _TABLES[768 + ((word >> 32) & 0xFF)]
            ^ _TABLES[512 + ((word >> 40) & 0xFF)]
            ^ _TABLES[256 + ((word >> 48) & 0xFF)]
            ^ _TABLES[(word >> 56) & 0xFF]
        )
        address += 8
    while address < end:
        crc = _TABLES[(crc ^ load_u1(address)) & 0xFF] ^ (crc >> 8)
        address += 1
    return crc ^ _MASK32


@helper
def folded_crc32(address: int, length: int, crc: int) -> int:
    """Compute the CRC-32 of `length` bytes at `address`, continuing `crc`; requires a CPU with PCLMULQDQ."""
    if length & ~15 >= WIDE_MINIMUM:
        return _fold_four(address, length, crc ^ _MASK32) ^ _MASK32
    if length >= 16:
        return _fold_one(address, length, crc ^ _MASK32) ^ _MASK32
    return table_crc32(address, length, crc)


crc32 = folded_crc32 if HAS_PCLMUL else table_crc32


@kernel
def crc32_at(data: int, length: int, crc: int) -> int:
    """Return the CRC of `length` bytes at an address, continuing `crc`."""
    return crc32(data, length, crc)


def checksum(data: Buffer, crc: int = 0) -> int:
    """Return the CRC of bytes, continuing `crc`, equal to the result of zlib.crc32."""
    memory = np.frombuffer(data, np.uint8)
    return crc32_at(address(memory), len(memory), crc)
