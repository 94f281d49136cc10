"""Files of the project by patterns, for tests that go through all of a kind: a pattern that finds none is an error.

`Path.glob` of a folder that is gone gives nothing, and a test that walks over nothing passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def files(folder: Path, *patterns: str) -> list[Path]:
    """Return the files below a folder that match one of the patterns, sorted by path.

    Raises:
        AssertionError: a pattern matches nothing.
    """
    found: set[Path] = set()
    for pattern in patterns:
        matching = {path for path in folder.glob(pattern) if path.is_file()}
        assert matching, f"{folder} has no {pattern}: the test would check nothing"
        found |= matching
    return sorted(found)
