"""Check imports in code that stands in strings: tests run it in other processes, and no tool renames it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.kit.tree import files

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("pyspark_mariadb_binlog", "replica", "streaming_source", "demo", "tests")
IMPORT = re.compile(rf"\bfrom ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import ((?:\w+(?: as \w+)?(?:, )?)+)")


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


@pytest.mark.parametrize("folder", ["tests", "demo", "tools"])
def test_each_name_that_code_in_a_string_imports_is_there(folder: str) -> None:
    found = {one for path in files(PROJECT / folder, "**/*.py") for one in imports(path)}
    assert found or folder != "tests"
    for module, name in sorted(found):
        if importlib.util.find_spec(module) is None or not hasattr(importlib.import_module(module), name):
            assert importlib.util.find_spec(f"{module}.{name}"), f"from {module} import {name}"
