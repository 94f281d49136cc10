"""Compile all kernels into the cache in advance: `python -m replica.native.warm`.

Otherwise the first query after an installation waits for the compiler, in every worker at the same time. Run it when an
image or a virtual environment is built, as the user who runs Spark. Another user needs NUMBA_CACHE_DIR, set to a folder
that Spark's user can read. Kernels take only addresses and counts, so their signatures are known without a call.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.native.compile import KERNELS
from replica.native.compiling.code_cache import CACHE, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES: Final = ("replica", "streaming_source")
"""Packages of this distribution."""
ROOT: Final = Path(__file__).resolve().parents[2]
"""Folder that contains the packages."""
BEHIND: Final = 10
"""Nice level of the compiler while other processes continue. If all processes wait for it, it has the processors alone.
"""


def kernel_names() -> list[tuple[str, str]]:
    """List the (module, function) of every kernel, kernels of the longest modules first, which take the longest to
    compile.
    """
    paths = [path for package in PACKAGES for path in ROOT.glob(f"{package}/**/kernel_*.py")]
    for path in sorted(paths, key=lambda path: -path.stat().st_size):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return [(kernel.py_func.__module__, kernel.py_func.__name__) for kernel in KERNELS]


def compile_kernel(module: str, name: str) -> float:
    """Compile one kernel; return the seconds that it took, a few hundredths if the cache has the kernel."""
    begin = time.perf_counter()
    getattr(importlib.import_module(module), name).compile()
    return time.perf_counter() - begin


def load_imported() -> int:
    """Compile the kernels of the modules imported so far, or load them from the cache; return their number."""
    for kernel in KERNELS:
        kernel.compile()
    return len(KERNELS)


def compile_missing(modules: Sequence[str], cache: str) -> list[str]:
    """Compile the kernels of some modules that the cache lacks, in parallel; one process at a time does this.

    It runs with low priority, because the processes that need the kernels continue: they start Spark, or interpret.

    Returns:
        The modules that do not exist or have no kernel. The kernels of the others are compiled nevertheless.
    """
    os.nice(BEHIND)
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    with (Path(cache) / "compiling").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [kernel for kernel in KERNELS if kernel.py_func.__module__ in modules and not kernel.is_cached()]
        missing.sort(key=lambda kernel: -len(kernel.py_func.__code__.co_code))
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            for kernel in missing:
                pool.submit(compile_kernel, kernel.py_func.__module__, kernel.py_func.__name__)
    return sorted(set(modules) - {kernel.py_func.__module__ for kernel in KERNELS})


def main(arguments: list[str]) -> int:
    """Compile all kernels, one per process.

    With --check, the exit code only shows whether that is done. With --only, compile the missing kernels of some
    modules; a module without a kernel is an error.
    """
    if CACHE is None:
        print("no writable cache folder: set NUMBA_CACHE_DIR", file=sys.stderr)
        return 1
    done = stamp(Path(CACHE))
    if arguments == ["--check"]:
        return 0 if done.exists() else 1
    if arguments[:1] == ["--only"]:
        empty = compile_missing(arguments[1:], CACHE)
        if empty:
            print(f"no kernel in {', '.join(empty)}", file=sys.stderr)
        return 1 if empty else 0
    begin = time.perf_counter()
    names = kernel_names()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        pending = {name: pool.submit(compile_kernel, module, name) for module, name in names}
        for name, seconds in pending.items():
            print(f"{name:20} {seconds.result():6.1f} s")
    done.touch()
    print(f"{len(names)} kernels in {time.perf_counter() - begin:.1f} s, in {CACHE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
