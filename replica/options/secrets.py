"""Warnings about files with secrets that every user of the machine may read."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def exposed(paths: Iterable[Path | None]) -> list[str]:
    """Return one warning for each file that every user of the machine may read.

    None and missing files give no warning.
    """
    found = []
    for path in dict.fromkeys(paths):
        try:
            readable = path is not None and path.stat().st_mode & stat.S_IROTH
        except OSError:
            readable = False  # the code that opens the file reports the error better
        if readable:
            found.append(f"{path} holds a secret and can be read by every user of this machine: chmod 600 {path}")
    return found
