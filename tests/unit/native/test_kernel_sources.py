"""A changed constant makes kernels compile again: every module that they take names from is a kernel source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from replica.native.compile import KERNEL_SOURCES
from tests.kit.tree import files

ROOT = Path(__file__).resolve().parents[3]
COVERED = {path for pattern in KERNEL_SOURCES for path in files(ROOT / "replica", pattern)}


def imported(path: Path) -> set[Path]:
    """Our modules that a module imports when it runs, not only for its annotations."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("replica."):
            module = ROOT / str(node.module).replace(".", "/")
            inside = [module / f"{alias.name}.py" for alias in node.names]
            found |= {path for path in (*inside, module.with_suffix(".py")) if path.exists()}
    return found


@pytest.mark.parametrize("kernel", files(ROOT, "replica/**/kernel*.py"), ids=lambda path: path.stem)
def test_every_module_a_kernel_imports_is_a_kernel_source(kernel: Path) -> None:
    assert kernel in COVERED
    assert imported(kernel) <= COVERED
