"""Numbers and sizes of the complete relay files, without a look at each file again.

`SealedFiles` lists the directory once. After that, a call only checks the oldest file, because files are added at the
end and removed at the beginning. Another process may remove files at any time. Thread-safe.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from replica.relay_log.location import relay_numbers, relay_path

if TYPE_CHECKING:
    from pathlib import Path


class SealedFiles:
    """Complete relay files; empty at first, filled by `extend` and `add`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}  # ascending numbers; some 100 bytes a file
        self._bytes = 0
        self._next: int | None = None

    def extend(self, last: int) -> None:
        """Add the files up to number `last` that are new since the last call."""
        with self._lock:
            if self._next is None or not self._sizes:
                numbers = [n for n in relay_numbers(self._directory) if n <= last and n not in self._sizes]
            else:
                numbers = list(range(self._next, last + 1))
            for number in numbers:
                self._add(number, self._size(number))
            self._next = max(self._next or 0, last + 1)

    def add(self, number: int, size: int) -> None:
        """Add a file that has just been completed."""
        with self._lock:
            self._add(number, size)
            self._next = number + 1

    def oldest(self) -> tuple[int, int] | None:
        """Return the number and size of the oldest existing file."""
        with self._lock:
            while self._sizes:
                number = next(iter(self._sizes))
                if self._size(number) is not None:
                    return number, self._sizes[number]
                self._bytes -= self._sizes.pop(number)
            return None

    def total(self) -> tuple[int, int]:
        """Return the number of files and their total bytes."""
        self.oldest()
        return len(self._sizes), self._bytes

    def forget(self, number: int) -> None:
        with self._lock:
            self._bytes -= self._sizes.pop(number, 0)

    def _add(self, number: int, size: int | None) -> None:
        if size is not None and number not in self._sizes:
            self._sizes[number] = size
            self._bytes += size

    def _size(self, number: int) -> int | None:
        try:
            return relay_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return None
