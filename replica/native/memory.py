"""Raw memory for kernels: unaligned loads and stores at an address, memcpy, memmove and prefetch; 128-bit arithmetic.

Kernels with array indexing run three to five times slower. Addresses are int64. No function checks bounds: a kernel
must check once per event or value, before it accesses memory.

128-bit numbers are (high, low) int64 words in two's complement, in Arrow's layout.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from replica.native.compile import PAIR, Intrinsic

_BITS = {"u1": 8, "u2": 16, "u4": 32, "u8": 64}


def _loader(name: str, *, swap: bool = False, signed: bool = False) -> Any:
    bits = _BITS[name]

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
        value = builder.load(pointer, align=1)
        if swap:
            value = builder.bswap(value)
        if bits == 64:
            return value
        return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

    return Intrinsic(build, "int64", "int64")


def _storer(name: str) -> Any:
    bits = _BITS[name]

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
        value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
        builder.store(value, pointer, align=1)
        return context.get_dummy_value()

    return Intrinsic(build, "void", "int64", "int64")


# Loads return an int64: zero-extended (u1, u2, u4), sign-extended (i1, i2, i4), or the same 64 bits (u8).
load_u1, load_u2, load_u4, load_u8 = (_loader(n) for n in ("u1", "u2", "u4", "u8"))
load_i1, load_i2, load_i4 = (_loader(n, signed=True) for n in ("u1", "u2", "u4"))
# Big endian.
load_u2be, load_u4be = (_loader(n, swap=True) for n in ("u2", "u4"))
# Stores take an int64 and keep its low bits.
store_u1, store_u2, store_u4, store_u8 = (_storer(n) for n in ("u1", "u2", "u4", "u8"))


def _float_loader(kind: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
        return builder.fpext(value, ir.DoubleType()) if kind == ir.FloatType() else value

    return Intrinsic(build, "float64", "int64")


def _float_storer(kind: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.fptrunc(args[1], kind) if kind == ir.FloatType() else args[1]
        builder.store(value, builder.inttoptr(args[0], kind.as_pointer()), align=1)
        return context.get_dummy_value()

    return Intrinsic(build, "void", "int64", "float64")


# IEEE numbers of 4 and 8 bytes; kernels compute with float64.
load_f4, load_f8 = _float_loader(ir.FloatType()), _float_loader(ir.DoubleType())
store_f4, store_f8 = _float_storer(ir.FloatType()), _float_storer(ir.DoubleType())


def _mover(name: str) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic(name, [byte, byte, ir.IntType(64)])
        target, source = (builder.inttoptr(a, byte) for a in args[:2])
        builder.call(function, [target, source, args[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return Intrinsic(build, "void", "int64", "int64", "int64")


copy = _mover("llvm.memcpy")  # (target, source, size): the areas must not overlap
move = _mover("llvm.memmove")  # (target, source, size): they may


def _prefetch(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(function, [builder.inttoptr(args[0], byte), *(ir.Constant(number, n) for n in (0, 3, 1))])
    return context.get_dummy_value()


prefetch: Any = Intrinsic(_prefetch, "void", "int64")
"""Intrinsic that requests the bytes at an address that is read soon; an invalid address has no effect."""


def _join(builder: Any, high: Any, low: Any) -> Any:
    wide = ir.IntType(128)
    return builder.or_(builder.shl(builder.zext(high, wide), ir.Constant(wide, 64)), builder.zext(low, wide))


def _split(context: Any, builder: Any, signature: Any, value: Any) -> Any:
    word = ir.IntType(64)
    high = builder.trunc(builder.lshr(value, ir.Constant(ir.IntType(128), 64)), word)
    return context.make_tuple(builder, signature.return_type, [high, builder.trunc(value, word)])


def _multiply_add(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    wide = ir.IntType(128)
    value = builder.mul(_join(builder, args[0], args[1]), builder.zext(args[2], wide))
    return _split(context, builder, signature, builder.add(value, builder.zext(args[3], wide)))


def _negate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return _split(context, builder, signature, builder.neg(_join(builder, args[0], args[1])))


multiply_add: Any = Intrinsic(_multiply_add, PAIR, "int64", "int64", "int64", "int64")
"""Intrinsic that computes `(high, low) * factor + addend`; factor and addend are non-negative int64."""
negate: Any = Intrinsic(_negate, PAIR, "int64", "int64")
"""Intrinsic that computes `-(high, low)`."""
