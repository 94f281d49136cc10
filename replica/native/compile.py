"""The one way to make a kernel: `@kernel` compiles on first use, caches on disk, and lets the GIL go.

numba raises at import time when it finds no writable cache folder (read-only site-packages, executors without a home),
so a usable folder is chosen before the first kernel is declared; without any, kernels compile in memory.

numba looks only at the file that declares a kernel to see whether its cached code is stale. A kernel is made of other
files too (helpers, record layouts), so every state of our sources gets a folder of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final, TypeVar

_Function = TypeVar("_Function")

KERNELS: list[Any] = []
"""Every kernel of the modules imported so far (numba dispatchers), for `replica.native.warm`."""

# Kernels, their helpers, and the modules whose constants they take in when they are compiled.
KERNEL_SOURCES = (
    "native/*.py",
    "protocol/constants.py",
    "protocol/event_row.py",
    "**/kernel*.py",
    "relay_log/domains.py",
    "relay_log/stops.py",
    "relay_log/stream_record.py",
    "relay_log/state.py",
    "rows/*/records.py",
    "rows/types/plan_record.py",
    "rows/types/kinds.py",
    "table_reader/half_record.py",
    "table_reader/records.py",
)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def source_digest() -> str:
    """Return a short name of the state of all modules that kernels are made of."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for pattern in KERNEL_SOURCES:
        for source in sorted(root.glob(pattern)):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def choose_cache() -> str | None:
    """Choose the folder that kernels are cached in; None where no folder can be written (then they compile in
    memory).
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    candidates = [
        os.environ.get("NUMBA_CACHE_DIR"),
        os.path.join(os.path.expanduser(home), "spark-mariadb-binlog", "kernels"),  # noqa: PTH111, PTH118
        os.path.join(tempfile.gettempdir(), f"spark-mariadb-binlog-{os.getuid()}", "kernels"),  # noqa: PTH118
    ]
    # A child process inherits a folder that already bears the name.
    name = source_digest()
    folders = (Path(c) if Path(c).name == name else Path(c) / name for c in candidates if c)
    return next((str(folder) for folder in folders if _writable(folder)), None)


CACHE = choose_cache()
if CACHE is not None:
    os.environ["NUMBA_CACHE_DIR"] = CACHE

from replica.native.collection import without_collection  # noqa: E402

with without_collection():
    import numba  # (reads NUMBA_CACHE_DIR when it is imported)

if CACHE is not None:
    numba.config.CACHE_DIR = CACHE  # in case something imported numba before us

from numba import types  # noqa: E402
from numba.extending import typeof_impl  # noqa: E402

from replica.native.ahead import COMPILING  # noqa: E402
from replica.native.record import Layout  # noqa: E402

_PACKAGES: Final = ("replica.", "streaming_source.")
"""The packages whose kernels another process can compile: it imports them by name."""


class Kernel:
    """A kernel as Python calls it; in other kernels, what it holds is called."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.py_func = compiled.py_func
        self._signature = (numba.int64,) * self.py_func.__code__.co_argcount
        self._run: Any = self._first

    def __call__(self, *arguments: int) -> int:
        """Run it; the first call has it compiled, or loads it."""
        found: int = self._run(*arguments)
        return found

    @property
    def signatures(self) -> list[Any]:
        """What arguments it is compiled for, in this process."""
        return list(self.compiled.signatures)

    def compile(self) -> None:
        """Compile it in this process, or load it from the cache; this takes some hundredths of a second then."""
        with without_collection():
            self.compiled.compile(self._signature)
        self._run = self.compiled

    def is_cached(self) -> bool:
        """Tell whether it is in the cache, without loading it."""
        cache = self.compiled._cache  # noqa: SLF001  (numba has no other way to ask)
        key = cache._index_key(self._signature, self.compiled.targetctx.codegen())  # noqa: SLF001
        return key in cache._cache_file._load_index()  # noqa: SLF001

    def _first(self, *arguments: int) -> int:
        if CACHE is not None and self.py_func.__module__.startswith(_PACKAGES) and not self.is_cached():
            COMPILING.begin(KERNELS, CACHE)
            if COMPILING.interprets:
                from replica.native.interpreted import interpreted  # noqa: PLC0415  (few need it)

                slowly: int = interpreted(self)(*arguments)
                return slowly
            COMPILING.wait_for(self.is_cached)
        self.compile()
        return self(*arguments)


@typeof_impl.register(Kernel)
def _as_dispatcher(kernel: Kernel, _: Any) -> types.Type:
    return types.Dispatcher(kernel.compiled)


@typeof_impl.register(Layout)
def _as_module(record: Layout, _: Any) -> types.Type:
    """Let kernels read a record's offsets as they read the constants of a module: when they are compiled."""
    return types.Module(record)


def kernel(function: _Function) -> _Function:
    """Compile `function` with numba: no Python objects, no GIL, cached on disk where that is possible."""
    compiled = numba.njit(nogil=True, cache=CACHE is not None, boundscheck=False, error_model="numpy")(function)
    made: Any = Kernel(compiled)
    KERNELS.append(made)
    return made


def helper(function: _Function) -> _Function:
    """Declare a small function that kernels call: inlined by LLVM, cached with its caller."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE is not None, error_model="numpy", inline="never")(function)
    return compiled


def inlined(function: _Function) -> _Function:
    """Declare a helper that is called in one place and too long for LLVM to inline by itself: a part of its kernel."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE is not None, error_model="numpy", forceinline=True)(function)
    return compiled


def interpret_meanwhile(*modules: str) -> None:
    """Let kernels that are not compiled yet be interpreted until they are: for programs that people wait for.

    Those of the modules imported so far, and of some that are imported when they are needed.
    """
    for module in modules:
        importlib.import_module(module)
    COMPILING.interpret = True
    if CACHE is not None:
        COMPILING.begin(KERNELS, CACHE)


def compile_ahead(*others: str) -> None:
    """Begin to compile what the cache lacks of the kernels imported so far, and then of other modules, beside us; they
    are interpreted until they are there, so work has to come in small pieces.
    """
    COMPILING.others.update(others)
    COMPILING.interpret = True
    if CACHE is not None:
        COMPILING.begin(KERNELS, CACHE)
