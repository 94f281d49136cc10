"""Declaration of kernels: `@kernel` compiles on first use, caches the machine code on disk, and releases the GIL.

Kernels and helpers are only declared here. `compile.py` compiles them with numba if the cache lacks one;
`code_cache.py` loads cached code without numba.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import threading
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import llvmlite.binding as llvm

from replica.native.compiling.ahead import COMPILING
from replica.native.compiling.code_cache import (
    BOOLEAN,
    CACHE,
    INTEGER,
    NOTHING,
    MachineCode,
    kernel_file,
    load,
    read,
    write,
)
from replica.native.record import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_Function = TypeVar("_Function")

KERNELS: list[Kernel] = []

"""Kernels of all modules imported so far, for `replica.native.warm`."""

PAIR: Final = "pair"

"""Result of an intrinsic that returns two int64."""

_PACKAGES: Final = ("replica.", "streaming_source.")

"""Packages whose kernels another process can compile, because it can import them by name."""

_ONE: Final = threading.Lock()

"""Lock of the thread that compiles or loads a kernel: LLVM accepts each symbol once, and numba one function at a time.
"""


class Kernel:
    """A kernel as Python calls it: it takes int64 numbers and addresses, and returns an int64, a bool or None."""

    def __init__(self, function: Any) -> None:
        self.py_func = function
        self.is_loaded = False
        """Whether this process has loaded the machine code."""
        self._run: Callable[..., Any] = self._first

    def __call__(self, *arguments: int) -> int:
        """Run the kernel; the first call compiles or loads it."""
        found: int = self._run(*arguments)
        return found

    def compile(self) -> None:
        """Load the kernel from the cache, or compile it in this process; loading takes a millisecond."""
        with _ONE:
            if not self.is_loaded:
                self._run = load(self._code())
                self.is_loaded = True

    def _code(self) -> MachineCode:
        code = None if self._file is None else read(self._file)
        if code is None:
            code = lowered(self)
            if self._file is not None:
                with contextlib.suppress(OSError):  # on a full disk each process compiles for itself
                    write(code, self._file)
        return code

    def is_cached(self) -> bool:
        """Return True if the kernel is in the cache, without loading it."""
        return self._file is not None and self._file.exists()

    @cached_property
    def _file(self) -> Path | None:
        return None if CACHE is None else kernel_file(self.py_func, CACHE)

    def _first(self, *arguments: int) -> Any:
        if CACHE is not None and self.py_func.__module__.startswith(_PACKAGES) and not self.is_cached():
            COMPILING.begin(KERNELS, CACHE)
            if COMPILING.interprets:
                from replica.native.compiling.interpreted import interpreted  # noqa: PLC0415  (rarely needed)

                return interpreted(self)(*arguments)
            COMPILING.wait_for(self.is_cached)
        self.compile()
        return self._run(*arguments)


class Helper:
    """A function that kernels call; `how` has arguments of numba's `njit`."""

    def __init__(self, function: Any, **how: object) -> None:
        self.py_func = function
        self.how = how


class Intrinsic:
    """An operation of kernels that Python does not have.

    `result` and `parameters` are names of numba types, or PAIR. `build` emits the operation with LLVM's builder:
    `build(context, builder, signature, arguments)`, as for `numba.extending.intrinsic`.
    """

    def __init__(self, build: Callable[..., Any], result: str, *parameters: str) -> None:
        self.build = build
        self.result = result
        self.parameters = parameters


def kernel(function: _Function) -> _Function:
    """Declare a kernel: no Python objects, no GIL, and machine code on disk if possible."""
    made: Any = Kernel(function)
    KERNELS.append(made)
    return made


def helper(function: _Function) -> _Function:
    """Declare a small function that kernels call: LLVM inlines it, and it is cached with its caller."""
    declared: Any = Helper(function, inline="never")
    return declared


def inlined(function: _Function) -> _Function:
    """Declare a helper that has one caller and is too long for LLVM's own inlining: it becomes a part of its kernel."""
    declared: Any = Helper(function, forceinline=True)
    return declared


def interpret_meanwhile(*modules: str) -> None:
    """Let kernels be interpreted until they are compiled, for interactive programs.

    This covers kernels of the modules imported so far, and of `modules`, which are otherwise imported later.
    """
    for module in modules:
        importlib.import_module(module)
    COMPILING.interpret = True
    if CACHE is not None:
        COMPILING.begin(KERNELS, CACHE)


def compile_ahead(*others: str) -> None:
    """Start compiling missing kernels in the background: those of the modules imported so far, then those of `others`.

    Kernels are interpreted until they are ready, so work must come in small pieces.
    """
    COMPILING.others.update(others)
    COMPILING.interpret = True
    if CACHE is not None:
        COMPILING.begin(KERNELS, CACHE)


# `lowered` returns the `MachineCode` of a kernel. numba compiles a function with a wrapper for Python. Everything
# except the function and its callees is removed from the module before LLVM makes an object file. Only this module
# imports numba, and only for a kernel that is not in the cache.


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
