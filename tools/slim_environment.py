"""Remove what the daemon and its commands never use: `python tools/slim_environment.py ENVIRONMENT`.

The Dockerfile runs this program on the environment that it has just installed. In: the folder of a virtual environment
with this project, and without packages that need more. Out: the same environment, a third smaller. The program imports
every module of `replica` once. This proves that the environment still works, and leaves only the bytecode of modules
that are used. `pyarrow.parquet`, `pyarrow.dataset` and similar modules are removed, so Spark cannot use it.

The program needs only Python's standard library. It changes no file in place: hard links of a file keep their content.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

REMOVED: Final[dict[str, str]] = {
    "**/tests": "tests of packages",
    "**/*.py[xi]": "what compilers and type checkers read",
    "**/*.px[di]": "the same",
    "**/*.[ch]": "the same",
    "**/*.[ch]pp": "the same",
    "**/*.a": "libraries for linking",
    "pyarrow/include": "headers",
    "pyarrow/src": "sources",
    "pyarrow/*flight*": "a network protocol of Arrow",
    "pyarrow/*s3*": "files in object stores",
    "pyarrow/*azure*": "the same",
    "pyarrow/*gcs*": "the same",
    "pyarrow/*hdfs*": "the same",
    "pyarrow/*parquet_encryption*": "encrypted Parquet files",
    "pyarrow/_parquet*": "Parquet files: Spark writes them, not this environment",
    "pyarrow/_orc*": "ORC files",
    "pyarrow/_dataset*": "folders of such files",
    "pyarrow/_substrait*": "plans of queries",
    "pyarrow/_acero*": "the engine that runs them",
    "numpy/_core/_simd*": "numpy's own tests only",
    "numpy/f2py": "Fortran",
    "numba/cuda": "graphics cards",
    "zstandard/_cffi*": "for PyPy: CPython has backend_c",
    "pygments/lexers/[a-z]*.py": "colours for 500 languages: no command shows code",
    "pygments/lexers/*_builtins.py": "the same",
}
"""Patterns of removed files below site-packages, with their purpose."""

LED_ELSEWHERE: Final = ("libparquet.so.*", "libarrow_substrait.so.*", "libarrow_dataset.so.*", "libarrow_acero.so.*")
"""Libraries of pyarrow that its core names as needed and takes nothing from (`ldd -u` tells): 18 MB. Their names lead
to libarrow itself, which is loaded anyway; the loader sees that it is the same file.
"""

ELF: Final = b"\x7fELF\x02\x01"
"""How a shared library of 64 bits begins whose numbers have their low byte first: x86-64 and arm64."""

EVERY_MODULE: Final = """
import importlib, pkgutil, replica
for module in pkgutil.walk_packages(replica.__path__, "replica."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
"""


def loaded_length(library: bytes) -> int:
    """Return how many bytes of a shared library the loader may read. Bytes for linkers and debuggers follow them."""
    table, size, count = *struct.unpack_from("<Q", library, 32), *struct.unpack_from("<HH", library, 54)
    ends = [table + size * count]
    for entry in range(table, table + size * count, size):
        offset, length = *struct.unpack_from("<Q", library, entry + 8), *struct.unpack_from("<Q", library, entry + 32)
        ends.append(offset + length)
    return max(ends)


def strip(library: Path) -> None:
    """Remove the bytes after the loaded part of a shared library; do nothing to other files.

    `strip` would do the same, but is not in slim base images. The header then says that there is no table of sections.
    """
    content = library.read_bytes()
    if not content.startswith(ELF) or (length := loaded_length(content)) >= len(content):
        return
    shorter = bytearray(content[:length])
    shorter[40:48] = bytes(8)  # where the table of sections is
    shorter[60:64] = bytes(4)  # how many there are, and which of them has their names
    beside = library.with_name(library.name + ".stripped")
    beside.write_bytes(shorter)
    shutil.copymode(library, beside)
    beside.replace(library)


def slim(packages: Path) -> None:
    """Remove unused files from a site-packages folder, and strip shared libraries."""
    for pattern in REMOVED:
        for path in sorted(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # below a folder that went before it
    libraries = packages / "pyarrow"
    (core,) = libraries.glob("libarrow.so.*")
    for pattern in LED_ELSEWHERE:
        for library in libraries.glob(pattern):
            library.unlink()
            library.symlink_to(core.name)
    # A wheel has no links: it holds the same library under the names that a linker, a loader and a person look for.
    (named,) = (name for name in libraries.glob("libarrow_python.so.*") if name.name.count(".") == core.name.count("."))
    for copy in libraries.glob("libarrow_python.so*"):
        if copy != named:
            copy.unlink()
    for path in packages.rglob("*.so*"):
        if path.is_file() and not path.is_symlink():
            strip(path)


def main(arguments: list[str]) -> int:
    """Slim the environment and import everything with it; the exit code is that of the import."""
    (environment,) = arguments
    (packages,) = Path(environment).glob("lib/python3*/site-packages")
    slim(packages)
    # Kernels are declared, not compiled; where they would be cached is not of this environment.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # -P: what is installed, not the sources that may lie in the folder where this runs.
    command = [Path(environment, "bin", "python"), "-P", "-c", EVERY_MODULE]
    return subprocess.run(command, env=clean, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
