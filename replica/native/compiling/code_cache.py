"""Name the files that compiled kernels are kept in: one each, in a folder of the state of our sources.

A kernel is made of other files than its own (helpers, record layouts), so every state of our sources gets a folder.
A file is for one kind of processor and one compiler: both are in its name. It is for every checkout and every Python.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import llvmlite
import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

# Kernels, their helpers, and the modules whose constants they take in when they are compiled.
KERNEL_SOURCES: Final = (
    "replica/native/**/*.py",
    "replica/protocol/constants.py",
    "replica/protocol/event_row.py",
    "replica/**/kernel*.py",
    "replica/relay_log/kernels/domains.py",
    "replica/relay_log/kernels/stops.py",
    "replica/relay_log/kernels/stream_record.py",
    "replica/relay_log/files/state.py",
    "replica/rows/*/records.py",
    "replica/rows/types/plan_record.py",
    "replica/rows/types/kinds.py",
    "replica/snapshot/images/half_record.py",
    "replica/snapshot/rows/records.py",
    "streaming_source/**/kernel*.py",
)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _own_temporary() -> str | None:
    """Make a temporary folder of this user alone, and return it: what lies there is run as code, and anyone may make a
    folder in /tmp before we do. None where someone has.
    """
    folder = Path(tempfile.gettempdir(), f"spark-mariadb-binlog-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return str(folder / "kernels") if own else None


def source_digest() -> str:
    """Return a short name of the state of all modules that kernels are made of."""
    root = Path(__file__).resolve().parents[3]
    digest = hashlib.sha256()
    for pattern in KERNEL_SOURCES:
        for source in sorted(root.glob(pattern)):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def choose_cache() -> str | None:
    """Choose the folder that kernels are cached in; None where there is none (then they compile in memory).

    One that cannot be written to will do if it has all kernels for this machine, as in an image that another user made.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    candidates: tuple[Callable[[], str | None], ...] = (
        lambda: os.environ.get("NUMBA_CACHE_DIR"),
        lambda: os.path.join(os.path.expanduser(home), "spark-mariadb-binlog", "kernels"),  # noqa: PTH111, PTH118
        _own_temporary,
    )
    name = source_digest()
    for candidate in candidates:
        given = Path(candidate() or os.devnull)
        folder = given if given.name == name else given / name  # a child process inherits one that bears the name
        if _is_complete(folder) or _writable(folder):
            return str(folder)
    return None


def _is_complete(folder: Path) -> bool:
    try:
        return stamp(folder).exists()
    except OSError:  # a home of someone else
        return False


def stamp(folder: Path) -> Path:
    """Return the file that a folder has once all kernels were compiled into it, for this processor by this compiler."""
    return folder / f"complete-{machine()}"


@cache
def machine() -> str:
    """Return a short name of what code is compiled for and by: the processor with its features, numba, LLVM."""
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    compiler = f"{_numba_version()} {llvmlite.__version__}"
    return hashlib.sha256(f"{processor} {compiler}".encode()).hexdigest()[:12]


def _numba_version() -> str:
    """Return what says numba's version, without importing it; looking for its distribution takes 20 ms."""
    spec = find_spec("numba")
    try:
        return Path(spec.origin).with_name("_version.py").read_text("utf-8") if spec and spec.origin else ""
    except OSError:
        return ""  # a file of its name hides it, which the compiler says


def kernel_file(function: FunctionType, cache: str) -> Path:
    """Return the file that a kernel is kept in. A kernel outside of our packages is known by its own source, too."""
    try:
        source = Path(function.__code__.co_filename).read_bytes()
    except OSError:  # typed in, or in an archive
        source = function.__code__.co_code
    made_of = hashlib.sha256(source + machine().encode()).hexdigest()[:12]
    return Path(cache) / f"{function.__module__}.{function.__qualname__}-{made_of}.kernel"


CACHE: Final = choose_cache()
if CACHE is not None:
    os.environ["NUMBA_CACHE_DIR"] = CACHE
    """numba reads it when it is imported, which only compiling needs, and raises if it finds no folder to write to."""
