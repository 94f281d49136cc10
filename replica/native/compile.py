"""The one way to make a kernel: `@kernel` compiles on first use, caches on disk, and lets the GIL go.

numba raises at import time when it finds no writable cache folder (read-only site-packages, executors without a home),
so a usable folder is chosen before the first kernel is declared; without any, kernels compile in memory.

numba looks only at the file that declares a kernel to see whether its cached code is stale. A kernel is made of other
files too (helpers, record layouts), so every state of our sources gets a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

_Function = TypeVar("_Function")

KERNELS: list[Any] = []
"""Every kernel of the modules imported so far (numba dispatchers), for `replica.native.warm`."""

# Kernels, their helpers, and the modules whose constants they take in when they are compiled.
KERNEL_SOURCES = (
    "native/*.py",
    "protocol/constants.py",
    "protocol/event_row.py",
    "**/kernel*.py",
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

import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)

if CACHE is not None:
    numba.config.CACHE_DIR = CACHE  # in case something imported numba before us


def kernel(function: _Function) -> _Function:
    """Compile `function` with numba: no Python objects, no GIL, cached on disk where that is possible."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE is not None, boundscheck=False, error_model="numpy")(function)
    KERNELS.append(compiled)
    return compiled


def helper(function: _Function) -> _Function:
    """Declare a small function that kernels call: inlined by LLVM, cached with its caller."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE is not None, error_model="numpy", inline="never")(function)
    return compiled


def inlined(function: _Function) -> _Function:
    """Declare a helper that is called in one place and too long for LLVM to inline by itself: a part of its kernel."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE is not None, error_model="numpy", forceinline=True)(function)
    return compiled
