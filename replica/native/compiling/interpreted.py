"""Kernels run by Python, from the same sources, while the compiler works.

`interpreted` returns a function with the same results, some hundred times slower. Loads, stores and other intrinsics
are replaced by Python functions, and so is every function that a kernel calls. Kernels rely on 64-bit numbers: every
stored number has 64 bits. `tests/unit/native/compiling/test_interpreted.py` compares both forms.
"""

from __future__ import annotations

import builtins
import ctypes
import zlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from replica.native import crc32, memory

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = (1 << 64) - 1
_MOST = (1 << 63) - 1
_LEAST = -1 << 63
_made: dict[int, Callable[..., Any]] = {}


def interpreted(kernel: Any) -> Callable[..., Any]:
    """Return a Python function with the same results as a kernel or a helper."""
    found = _made.get(id(kernel))
    if found is None:
        function = kernel.py_func
        names: dict[str, Any] = {"__builtins__": builtins}
        found = _as_int64(FunctionType(function.__code__, names, function.__name__, function.__defaults__))
        _made[id(kernel)] = found
        known = function.__globals__
        names.update({name: _plain(known[name]) for name in function.__code__.co_names if name in known})
    return found


def _as_int64(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its results cut to 64 bits, as in compiled code."""

    def run(*arguments: Any) -> Any:
        result = function(*arguments)
        if type(result) is int and not _LEAST <= result <= _MOST:
            return _signed(result & _WORD)
        return result

    return run


def _plain(value: Any) -> Any:
    if id(value) in _made:
        return _made[id(value)]
    if hasattr(value, "py_func"):
        return interpreted(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def _load(kind: Any) -> Callable[[int], int]:
    at = kind.from_address
    return lambda address: at(address).value


def _store(kind: Any) -> Callable[[int, Any], None]:
    at = kind.from_address

    def store(address: int, value: Any) -> None:
        at(address).value = value  # keeps the low bits

    return store


def _copy(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def _crc32(address: int, length: int, crc: int) -> int:
    return zlib.crc32((ctypes.c_char * length).from_address(address), crc)


def _signed(word: int) -> int:
    return word - (1 << 64) if word > _MOST else word


def _words(value: int) -> tuple[int, int]:
    return _signed((value >> 64) & _WORD), _signed(value & _WORD)


def _joined(high: int, low: int) -> int:
    return (high & _WORD) << 64 | (low & _WORD)


def _multiply_add(high: int, low: int, factor: int, addend: int) -> tuple[int, int]:
    return _words(_joined(high, low) * factor + addend)


def _negate(high: int, low: int) -> tuple[int, int]:
    return _words(-_joined(high, low))


def _ignore(_address: int) -> None:
    """Do nothing: Python has no prefetch."""


for _compiled, _by_python in (
    (memory.load_u1, _load(ctypes.c_uint8)),
    (memory.load_u2, _load(ctypes.c_uint16)),
    (memory.load_u4, _load(ctypes.c_uint32)),
    (memory.load_u8, _load(ctypes.c_int64)),
    (memory.load_i1, _load(ctypes.c_int8)),
    (memory.load_i2, _load(ctypes.c_int16)),
    (memory.load_i4, _load(ctypes.c_int32)),
    (memory.load_u2be, _load(ctypes.c_uint16.__ctype_be__)),
    (memory.load_u4be, _load(ctypes.c_uint32.__ctype_be__)),
    (memory.load_f4, _load(ctypes.c_float)),
    (memory.load_f8, _load(ctypes.c_double)),
    (memory.store_f4, _store(ctypes.c_float)),
    (memory.store_f8, _store(ctypes.c_double)),
    (memory.store_u1, _store(ctypes.c_uint8)),
    (memory.store_u2, _store(ctypes.c_uint16)),
    (memory.store_u4, _store(ctypes.c_uint32)),
    (memory.store_u8, _store(ctypes.c_uint64)),
    (memory.copy, _copy),
    (memory.move, _copy),
    (memory.prefetch, _ignore),
    (memory.multiply_add, _multiply_add),
    (memory.negate, _negate),
    (crc32.crc32, _crc32),
):
    _made[id(_compiled)] = _by_python
