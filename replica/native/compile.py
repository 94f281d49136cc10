"""Declaration of kernels: `@kernel` compiles on first use, caches the machine code on disk, and releases the GIL.

Kernels and helpers are only declared here. `lower.py` compiles them with numba if the cache lacks one;
`code_cache.py` loads cached code without numba.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from replica.native.compiling.ahead import COMPILING
from replica.native.compiling.code_cache import CACHE, kernel_file, load, read, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.native.compiling.code_cache import MachineCode

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
            from replica.native.compiling.lower import lowered  # noqa: PLC0415  (imports numba)

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
