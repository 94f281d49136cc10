"""Check imports and dotted names in strings: they reach other processes and monkeypatch, and no tool renames them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.kit.tree import files

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("pyspark_mariadb_binlog", "replica", "streaming_source", "demo", "tests")
IMPORT = re.compile(rf"\bfrom ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import ((?:\w+(?: as \w+)?(?:, )?)+)")
DOTTED = re.compile(rf"(?:{'|'.join((*PACKAGES, 'tools'))})(?:\.\w+){{2,}}")
"""A dotted name of three parts or more. Two parts may be a key of another kind, as `replica.gathered`."""


def imports(path: Path) -> set[tuple[str, str]]:
    """Module and name of each import in a string of a file."""
    strings = (
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {
        (found[1], name.partition(" as ")[0])
        for text in strings
        for found in IMPORT.finditer(text)
        for name in found[2].rstrip(", ").split(", ")
    }


def dotted_names(path: Path) -> tuple[set[str], set[str]]:
    """The dotted names that are a whole string of a file, and those that are the begin of an f-string."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    formatted = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(value) for values in formatted for value in values}
    begins = {
        values[0].value
        for values in formatted
        if isinstance(values[0], ast.Constant) and DOTTED.fullmatch(values[0].value)
    }
    whole = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    }
    return {text for text in whole if DOTTED.fullmatch(text)}, begins


def names_something(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize(
    "folder",
    [
        "replica",
        "streaming_source",
        "tests",
        "tools",
    ],
)
def test_each_dotted_name_in_a_string_names_something(folder: str) -> None:
    found = [dotted_names(path) for path in files(PROJECT / folder, "**/*.py")]
    assert [name for name in sorted(set().union(*(names for names, _ in found))) if not names_something(name)] == []
    modules = [
        ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        for package in ("replica", "streaming_source", "tests", "tools")
        for path in files(PROJECT / package, "**/*.py")
    ]
    begins = sorted(set().union(*(begins for _, begins in found)))
    assert [begin for begin in begins if not any(module.startswith(begin) for module in modules)] == []


@pytest.mark.parametrize("folder", ["tests", "demo", "tools"])
def test_each_name_that_code_in_a_string_imports_is_there(folder: str) -> None:
    found = {one for path in files(PROJECT / folder, "**/*.py") for one in imports(path)}
    assert found or folder != "tests"
    for module, name in sorted(found):
        if importlib.util.find_spec(module) is None or not hasattr(importlib.import_module(module), name):
            assert importlib.util.find_spec(f"{module}.{name}"), f"from {module} import {name}"
