"""Machine code of kernels: one file each, kept on disk and called without the GIL.

A kernel depends on other files than its own (helpers, record layouts), so every state of KERNEL_SOURCES has its own
folder. The name of a file contains the processor type and the compiler. A file is valid for every checkout and every
Python version.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import stat
import tempfile
import threading
from functools import cache
from importlib.util import find_spec
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import llvmlite
import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

# Kernels, their helpers, and the modules whose constants are compiled into them.
KERNEL_SOURCES: Final = (
    "replica/native/**/*.py",
    "replica/protocol/constants.py",
    "replica/**/kernel*.py",
    "replica/relay_log/kernels/stream_record.py",
    "replica/relay_log/kernels/stream_record.py",
    "replica/relay_log/files/scan.py",
    "replica/rows/*/records.py",
    "replica/rows/types/kinds.py",
    "replica/snapshot/images/kernel_row_halves.py",
    "replica/snapshot/rows/result_plan.py",
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
    """Make and return a temporary folder that only this user can write to; None if another user owns it.

    Its files are run as code, and any user may create a folder of that name in /tmp first.
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
    """Return a short digest of all modules that kernels depend on."""
    root = Path(__file__).resolve().parents[3]
    digest = hashlib.sha256()
    for pattern in KERNEL_SOURCES:
        for source in sorted(root.glob(pattern)):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def choose_cache() -> str | None:
    """Choose the cache folder; None if there is none, so that kernels are compiled in memory.

    A folder without write permission is accepted if it has all kernels for this machine, as in an image that another
    user built.
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
        folder = given if given.name == name else given / name  # a child process inherits the full path
        if _is_complete(folder) or _writable(folder):
            return str(folder)
    return None


def _is_complete(folder: Path) -> bool:
    try:
        return stamp(folder).exists()
    except OSError:  # the home of another user
        return False


def stamp(folder: Path) -> Path:
    """Return the file that marks a folder as complete, for this processor and this compiler."""
    return folder / f"complete-{machine()}"


@cache
def machine() -> str:
    """Return a short digest of the target and the compiler: the processor with its features, numba, LLVM."""
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    compiler = f"{_numba_version()} {llvmlite.__version__}"
    return hashlib.sha256(f"{processor} {compiler}".encode()).hexdigest()[:12]


def _numba_version() -> str:
    """Return numba's version file, without importing numba. Looking up its distribution would take 20 ms."""
    spec = find_spec("numba")
    try:
        return Path(spec.origin).with_name("_version.py").read_text("utf-8") if spec and spec.origin else ""
    except OSError:
        return ""  # another file named numba hides the package; the compiler reports it


def kernel_file(function: FunctionType, cache: str) -> Path:
    """Return the cache file of a kernel. Outside of our packages, its name depends on the kernel's own source too."""
    try:
        source = Path(function.__code__.co_filename).read_bytes()
    except OSError:  # typed interactively, or in an archive
        source = function.__code__.co_code
    made_of = hashlib.sha256(source + machine().encode()).hexdigest()[:12]
    return Path(cache) / f"{function.__module__}.{function.__qualname__}-{made_of}.kernel"


CACHE: Final = choose_cache()

if CACHE is not None:
    os.environ["NUMBA_CACHE_DIR"] = CACHE
    """Read by numba at its import, which only compiling needs. numba raises an error without a writable folder."""
# `lower.py` compiles the code, `write` and `read` keep it in files, `load` makes a Python function. Nothing here may
# import numba, which takes a second of each process's start. A kernel takes int64 and returns one number, so its
# machine code runs without numba and Python.


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
