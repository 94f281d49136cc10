"""Names are compared by the rules of MariaDB and of Spark: no other module has one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.kit.tree import files

ROOT: Final = Path(__file__).parents[3]
ALLOWED: Final = {
    "replica/snapshot/rows/kept_key.py": "marks of older checkpoints",
    "streaming_source/mirroring/statements/alter_proof.py": "labels of ENUM and SET, which collations compare",
}
"""Modules that call `str.casefold`, and what for."""


def test_no_name_is_compared_by_casefold() -> None:
    """It makes one of `maße` and `masse`, which are two columns, and two tables, for the server and for Spark."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("replica", "streaming_source", "demo")
        for path in files(ROOT / folder, "**/*.py")
        if "casefold()" in path.read_text(encoding="utf-8") or "str.casefold," in path.read_text(encoding="utf-8")
    }
    assert found == set(ALLOWED)
