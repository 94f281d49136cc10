"""128-bit arithmetic for kernels: numbers as (high, low) int64 words in two's complement, in Arrow's layout."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from replica.native.compile import PAIR, Intrinsic


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
