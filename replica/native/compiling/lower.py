"""Compiler of kernels: numba compiles them to machine code that runs without numba and Python.

`lowered` returns the `MachineCode` of a kernel. numba compiles a function with a wrapper for Python. Everything except
the function and its callees is removed from the module before LLVM makes an object file. Only this module imports
numba, and only for a kernel that is not in the cache.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm

from replica.native.compile import PAIR, Helper, Intrinsic, Kernel
from replica.native.compiling.code_cache import (
    BOOLEAN,
    CACHE,  # its import sets NUMBA_CACHE_DIR, before numba is imported
    INTEGER,
    NOTHING,
    MachineCode,
)
from replica.native.record import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold the garbage collector back.

    Importing numba and loading kernels create a million objects that all stay alive. Walking them finds nothing, and
    takes a tenth of the CPU time of a process's start.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


with without_collection():
    import numba
    from numba import types
    from numba.core.registry import cpu_target
    from numba.extending import intrinsic, typeof_impl

if TYPE_CHECKING:
    from collections.abc import Callable

if CACHE is not None:
    numba.config.CACHE_DIR = CACHE  # in case numba was imported before

_KEEPS: Final = CACHE is not None and os.access(CACHE, os.W_OK)
"""Whether numba caches the compiled helpers, which several kernels share."""
_RESULTS: Final = {types.int64: INTEGER, types.boolean: BOOLEAN, types.none: NOTHING}
_ALLOWED: Final = ("llvm.", "memcpy", "memmove", "memset")
"""Prefixes of the functions that a kernel may call in the process: every process has them."""


class NotLoweredError(TypeError):
    """A kernel cannot stand alone: it returns something other than a number, or calls into numba."""


def lowered(kernel: Kernel) -> MachineCode:
    """Compile a kernel.

    Raises:
        NotLoweredError: The function is not a valid kernel.
    """
    function = kernel.py_func
    parameters = function.__code__.co_argcount
    with without_collection():
        compiler = numba.njit(nogil=True, boundscheck=False, error_model="numpy")(function)
        compiler.compile((types.int64,) * parameters)
    (made,) = compiler.overloads.values()
    result = _RESULTS.get(types.unliteral(made.signature.return_type))
    if result is None:
        raise NotLoweredError(f"{function.__qualname__} returns {made.signature.return_type}")
    symbol = made.fndesc.llvm_func_name
    return MachineCode(symbol, result, parameters, _object_of(made.library.get_llvm_str(), symbol))


def _object_of(text: str, symbol: str) -> bytes:
    """Return an object file with one function of a module and its dependencies."""
    module = llvm.parse_assembly(text)
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != symbol:
            one.linkage = "internal"
    machine = cpu_target.target_context.codegen()._tm  # noqa: SLF001  (the code must be loadable as numba's)
    _remove_unused(module, machine)
    foreign = [one.name for one in module.functions if one.is_declaration and not one.name.startswith(_ALLOWED)]
    foreign += [one.name for one in module.global_variables if one.is_declaration]
    if foreign:
        raise NotLoweredError(f"{symbol} needs {', '.join(foreign)}")
    code: bytes = machine.emit_object(module)
    return code


def _remove_unused(module: Any, machine: Any) -> None:
    if hasattr(llvm, "create_module_pass_manager"):  # llvmlite 0.44, with numba 0.61
        passes = llvm.create_module_pass_manager()
        passes.add_global_dce_pass()
        passes.run(module)
        return
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


# -- numba types of kernels, helpers, intrinsics and records -----------------------------------------------------------


@typeof_impl.register(Kernel)
@typeof_impl.register(Helper)
def _as_dispatcher(function: Kernel | Helper, _: Any) -> types.Type:
    return types.Dispatcher(_dispatcher(function))


@typeof_impl.register(Intrinsic)
def _as_intrinsic(operation: Intrinsic, _: Any) -> types.Type:
    return cpu_target.typing_context.resolve_value_type(_defined(operation))


@typeof_impl.register(Layout)
def _as_module(record: Layout, _: Any) -> types.Type:
    """Let kernels read a record's offsets as constants of a module, at compile time."""
    return types.Module(record)


@cache
def _dispatcher(function: Kernel | Helper) -> Any:
    """Return numba's dispatcher for one of our functions; numba caches its code in its own files."""
    how: dict[str, Any] = function.how if isinstance(function, Helper) else {}
    return numba.njit(nogil=True, cache=_KEEPS, error_model="numpy", **how)(function.py_func)


@cache
def _defined(operation: Intrinsic) -> Any:
    """Return one of our operations as an intrinsic of numba."""
    result = types.UniTuple(types.int64, 2) if operation.result == PAIR else getattr(types, operation.result)
    signature = result(*(getattr(types, name) for name in operation.parameters))
    declared = _DECLARED[len(operation.parameters)](lambda: (signature, operation.build))
    made = intrinsic(declared)
    cpu_target.typing_context.refresh()  # numba registers new intrinsics before it compiles, and this one is later
    return made


# numba inspects the declaring function and accepts only named parameters, so each arity has its own.
_DECLARED: Final[dict[int, Callable[..., Any]]] = {
    1: lambda found: lambda typingctx, a: found(),  # noqa: ARG005
    2: lambda found: lambda typingctx, a, b: found(),  # noqa: ARG005
    3: lambda found: lambda typingctx, a, b, c: found(),  # noqa: ARG005
    4: lambda found: lambda typingctx, a, b, c, d: found(),  # noqa: ARG005
}
