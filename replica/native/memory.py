"""Raw memory for kernels: unaligned loads and stores at an address, memcpy, and the address of an array.

Kernels written with array indexing run three to five times slower than these (measured, see docs/performance.md).
Addresses are int64. Nothing here checks a bound: a kernel checks once per event or value, before it touches memory.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_BITS = {"u1": 8, "u2": 16, "u4": 32, "u8": 64}


def _loader(name: str, *, swap: bool = False, signed: bool = False) -> Any:
    bits = _BITS[name]

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            if swap:
                value = builder.bswap(value)
            if bits == 64:
                return value
            return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

        return types.int64(types.int64), codegen

    return load


def _storer(name: str) -> Any:
    bits = _BITS[name]

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


# Loads give an int64: zero-extended (u1, u2, u4), sign-extended (i1, i2, i4), or the 64 bits as they are (u8).
load_u1, load_u2, load_u4, load_u8 = (_loader(n) for n in ("u1", "u2", "u4", "u8"))
load_i1, load_i2, load_i4 = (_loader(n, signed=True) for n in ("u1", "u2", "u4"))
# Big endian.
load_u2be, load_u4be = (_loader(n, swap=True) for n in ("u2", "u4"))
# Stores take an int64 and keep its low bits.
store_u1, store_u2, store_u4, store_u8 = (_storer(n) for n in ("u1", "u2", "u4", "u8"))


def _float_loader(kind: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return builder.fpext(value, ir.DoubleType()) if kind == ir.FloatType() else value

        return types.float64(types.int64), codegen

    return load


def _float_storer(kind: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.fptrunc(args[1], kind) if kind == ir.FloatType() else args[1]
            builder.store(value, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.float64), codegen

    return store


# IEEE numbers of 4 and 8 bytes; both are a float64 in between.
load_f4, load_f8 = _float_loader(ir.FloatType()), _float_loader(ir.DoubleType())
store_f4, store_f8 = _float_storer(ir.FloatType()), _float_storer(ir.DoubleType())


def _mover(name: str) -> Any:
    @intrinsic
    def move(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            function = builder.module.declare_intrinsic(name, [byte, byte, ir.IntType(64)])
            target, source = (builder.inttoptr(a, byte) for a in args[:2])
            builder.call(function, [target, source, args[2], ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return move


copy = _mover("llvm.memcpy")  # (target, source, size): the areas must not overlap
move = _mover("llvm.memmove")  # (target, source, size): they may


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask the processor for the bytes at an address that is read soon; where no memory is, nothing happens."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [builder.inttoptr(args[0], byte), *(ir.Constant(number, n) for n in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
