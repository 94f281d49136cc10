"""Machine code of a kernel: kept in a file, loaded into the process, and called without the GIL.

`lower.py` compiles the code, `write` and `read` keep it in files, `load` makes a Python function. Nothing here may
import numba, which takes a second of each process's start. A kernel takes int64 and returns one number, so its machine
code runs without numba and Python.
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
"""ctypes type of a kernel's result (numba's data model: a bool is a byte)."""


class MachineCode(NamedTuple):
    """An object file with one kernel, named `symbol`; `result` is INTEGER, BOOLEAN or NOTHING."""

    symbol: str
    result: str
    parameters: int
    code: bytes


class KernelFailedError(RuntimeError):
    """A kernel ended with an error of numba. That is a bug: kernels return errors as numbers."""


def write(code: MachineCode, path: Path) -> None:
    """Write machine code to a file, atomically."""
    head = json.dumps([*code[:3], hashlib.sha256(code.code).hexdigest()]).encode()
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(head + b"\n" + code.code)  # readable for all: another user may run an image than built it
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> MachineCode | None:
    """Return the machine code of a file; None if it is missing or damaged. LLVM would abort the process for a damaged
    file.
    """
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        symbol, result, parameters, digest = json.loads(head)
    except (OSError, ValueError):
        return None
    whole = result in _HELD and hashlib.sha256(code).hexdigest() == digest
    return MachineCode(symbol, result, parameters, code) if whole else None


def load(code: MachineCode) -> Callable[..., Any]:
    """Load machine code into the process, permanently; return the function that calls it. Only one thread may call
    this.
    """
    address = _loaded(code)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * code.parameters)
    return _called(call(address), _HELD[code.result], code.symbol)


def _called(function: Callable[..., int], held: Any, symbol: str) -> Callable[..., Any]:
    byref, pointer, nothing = ctypes.byref, ctypes.c_void_p, held is ctypes.c_void_p

    def run(*arguments: int) -> Any:
        result, error = held(), pointer()
        try:
            status = function(byref(result), byref(error), *arguments)
        except ctypes.ArgumentError:  # a numpy number
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
    """Return the engine that links object files into this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
