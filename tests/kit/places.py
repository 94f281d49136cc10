"""Tell where each module of the project is tested: in the file of its name, or where tests/places.toml says."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.kit.tree import files

PROJECT = Path(__file__).resolve().parents[2]
PLACES = PROJECT / "tests" / "places.toml"
SOURCES = ("replica", "streaming_source")


class Twin(NamedTuple):
    """What a kernel is compared with, and where; paths in the project."""

    twin: str
    test: str


class Places(NamedTuple):
    """The table; keys are patterns of module paths, the first that matches counts."""

    elsewhere: dict[str, str]
    kernels: dict[str, Twin]


def read_places() -> Places:
    table = tomllib.loads(PLACES.read_text(encoding="utf-8"))
    elsewhere = {pattern: f"tests/{test}" for pattern, test in table["elsewhere"].items()}
    return Places(
        elsewhere, {name: Twin(one["twin"], f"tests/{one['test']}") for name, one in table["kernels"].items()}
    )


def modules() -> list[str]:
    """Every source file but those that hold nothing of their own."""
    paths = (path for source in SOURCES for path in files(PROJECT / source, "**/*.py"))
    named = (path for path in paths if path.name not in ("__init__.py", "__main__.py"))
    return sorted(str(path.relative_to(PROJECT)) for path in named)


def mirrored(module: str) -> str:
    """The test file of a module's own name."""
    parts = Path(module).with_suffix("").parts
    folders = parts[1:-1] if parts[0] == "replica" else parts[:-1]
    return "/".join(("tests", "unit", *folders, f"test_{parts[-1]}.py"))


def is_kernel(module: str) -> bool:
    return Path(module).name.startswith("kernel_") or module == "replica/native/crc32.py"


def matching(patterns: dict[str, object], module: str) -> str | None:
    """The first pattern that names the module."""
    return next((pattern for pattern in patterns if fnmatch(module, pattern)), None)


@cache
def _imports(path: str) -> frozenset[str]:
    """The files of the project that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PROJECT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("replica."):
            names.add(node.value)  # what commands import by name, when they are called
    files = {name.replace(".", "/") + ".py" for name in names if name.startswith((*SOURCES, "tests", "tools"))}
    return frozenset(file for file in files if (PROJECT / file).is_file())


@cache
def reached(path: str) -> frozenset[str]:
    """The files that a file imports, itself or through what it imports."""
    found, todo = {path}, [path]
    while todo:
        new = _imports(todo.pop()) - found
        found |= new
        todo += new
    return frozenset(found)
