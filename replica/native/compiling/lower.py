"""Compile kernels with numba: what they are made of becomes machine code that needs neither numba nor Python.

In: a kernel. Out: its `MachineCode`. numba compiles a function for itself, with a wrapper that Python calls; all but
the function and what it calls is taken out of the module before LLVM makes an object file of it. Only this module
imports numba, and only where a kernel is not in the cache.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm

from replica.native.compile import PAIR, Helper, Intrinsic, Kernel
from replica.native.compiling.code_cache import CACHE  # tells numba, as it is imported, where it may write
from replica.native.compiling.machine_code import BOOLEAN, INTEGER, NOTHING, MachineCode
from replica.native.record import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator


# Python's garbage collector, held back while much is made that stays.


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold the collector back: importing numba and loading kernels makes a million objects that all stay, and each walk
    over them finds nothing. It was a tenth of the CPU time of a process's start.
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
    numba.config.CACHE_DIR = CACHE  # in case something imported numba before us

_KEEPS: Final = CACHE is not None and os.access(CACHE, os.W_OK)
"""Whether numba keeps what it compiles of helpers, which several kernels are made of."""
_RESULTS: Final = {types.int64: INTEGER, types.boolean: BOOLEAN, types.none: NOTHING}
_ALLOWED: Final = ("llvm.", "memcpy", "memmove", "memset")
"""The functions that a kernel may ask the process for: those that every process has."""


class NotLoweredError(TypeError):
    """A kernel has no machine code of its own: it gives something else than a number, or calls into numba."""


def lowered(kernel: Kernel) -> MachineCode:
    """Compile a kernel.

    Raises:
        NotLoweredError: it is no kernel.
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
    """Return an object file with one function of a module, and what that needs."""
    module = llvm.parse_assembly(text)
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != symbol:
            one.linkage = "internal"
    machine = cpu_target.target_context.codegen()._tm  # noqa: SLF001  (code must be as numba's, to be loaded as numba loads its)
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


# -- what kernels are made of, as numba sees it ------------------------------------------------------------------------


@typeof_impl.register(Kernel)
@typeof_impl.register(Helper)
def _as_dispatcher(function: Kernel | Helper, _: Any) -> types.Type:
    return types.Dispatcher(_dispatcher(function))


@typeof_impl.register(Intrinsic)
def _as_intrinsic(operation: Intrinsic, _: Any) -> types.Type:
    return cpu_target.typing_context.resolve_value_type(_defined(operation))


@typeof_impl.register(Layout)
def _as_module(record: Layout, _: Any) -> types.Type:
    """Let kernels read a record's offsets as they read the constants of a module: when they are compiled."""
    return types.Module(record)


@cache
def _dispatcher(function: Kernel | Helper) -> Any:
    """Return what numba calls in the place of a function of ours; what it compiles, it keeps in files of its own."""
    how: dict[str, Any] = function.how if isinstance(function, Helper) else {}
    return numba.njit(nogil=True, cache=_KEEPS, error_model="numpy", **how)(function.py_func)


@cache
def _defined(operation: Intrinsic) -> Any:
    """Return an operation of ours as an intrinsic of numba's."""
    result = types.UniTuple(types.int64, 2) if operation.result == PAIR else getattr(types, operation.result)
    signature = result(*(getattr(types, name) for name in operation.parameters))
    declared = _DECLARED[len(operation.parameters)](lambda: (signature, operation.build))
    made = intrinsic(declared)
    cpu_target.typing_context.refresh()  # it looks at what is new before it compiles, and this is later
    return made


# numba looks at the parameters of what declares an intrinsic, and takes no others than are named.
_DECLARED: Final[dict[int, Callable[..., Any]]] = {
    1: lambda found: lambda typingctx, a: found(),  # noqa: ARG005
    2: lambda found: lambda typingctx, a, b: found(),  # noqa: ARG005
    3: lambda found: lambda typingctx, a, b, c: found(),  # noqa: ARG005
    4: lambda found: lambda typingctx, a, b, c, d: found(),  # noqa: ARG005
}
