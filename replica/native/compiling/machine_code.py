"""The machine code of a kernel: kept in a file, loaded into the process, called.

In: what `lower.py` compiles, or the file that holds it. Out: a function of Python that runs it without the GIL. Nothing
here imports numba, which takes a second of each process's start: a kernel takes int64 and gives one number, so its
machine code needs neither numba nor Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import threading
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INTEGER: Final = "int64"
BOOLEAN: Final = "bool"
NOTHING: Final = "none"
_HELD: Final[dict[str, Any]] = {INTEGER: ctypes.c_int64, BOOLEAN: ctypes.c_bool, NOTHING: ctypes.c_void_p}
"""What a kernel writes its result into (numba's data model: a bool is a byte)."""


class MachineCode(NamedTuple):
    """An object file with one kernel in it, under the name `symbol`; `result` is one of the three kinds above."""

    symbol: str
    result: str
    parameters: int
    code: bytes


class KernelFailedError(RuntimeError):
    """A kernel ended with an error of numba's. That is a bug: kernels return what is wrong as a number."""


def write(code: MachineCode, path: Path) -> None:
    """Keep machine code in a file, which is there as a whole or not at all."""
    head = json.dumps([*code[:3], hashlib.sha256(code.code).hexdigest()]).encode()
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(head + b"\n" + code.code)  # readable for all: who builds an image does not run it
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> MachineCode | None:
    """Return the machine code of a file; None if there is none, or a damaged one, which LLVM would end the process
    for.
    """
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        symbol, result, parameters, digest = json.loads(head)
    except (OSError, ValueError):
        return None
    whole = result in _HELD and hashlib.sha256(code).hexdigest() == digest
    return MachineCode(symbol, result, parameters, code) if whole else None


def load(code: MachineCode) -> Callable[..., Any]:
    """Load machine code into the process, for good and once; return what calls it. One thread at a time may."""
    address = _loaded(code)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * code.parameters)
    return _called(call(address), _HELD[code.result], code.symbol)


def _called(function: Callable[..., int], held: Any, symbol: str) -> Callable[..., Any]:
    byref, pointer, nothing = ctypes.byref, ctypes.c_void_p, held is ctypes.c_void_p

    def run(*arguments: int) -> Any:
        result, error = held(), pointer()
        try:
            status = function(byref(result), byref(error), *arguments)
        except ctypes.ArgumentError:  # a number of numpy's
            status = function(byref(result), byref(error), *map(index, arguments))
        if status:
            raise KernelFailedError(f"{symbol} ended with status {status}")
        return None if nothing else result.value

    return run


def _loaded(code: MachineCode) -> int:
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.code))
    engine.finalize_object()
    return int(engine.get_function_address(code.symbol))


@cache
def _engine() -> Any:
    """Return what links object files into this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
