"""The bytes of the relay log that a query has still to plan, told at every trigger, however far behind it is.

In: where the query and the head are; both move forward. Out: the bytes between. A complete file is looked at once,
FILES_A_CALL of them at a time; until all were, the others count as many bytes as those do on average. One that was
removed meanwhile counts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.relay_log.location import RelayLocation, relay_path

if TYPE_CHECKING:
    from pathlib import Path

FILES_A_CALL: Final = 32
"""A look costs some 7 us, and the progress of each trigger waits for these: a fifteenth of what it takes to plan."""


class Backlog:
    """The bytes between two places that move; it takes some 100 bytes of memory a file in between."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[int, int] = {}  # of complete files, ascending without gaps
        self._bytes = 0
        self._end = RelayLocation(0, 0)

    def bytes(self, start: RelayLocation, end: RelayLocation) -> int:
        first = next(iter(self._sizes), start.file)
        if end < self._end or start.file < first:  # the log was begun again
            self._sizes, self._bytes, first = {}, 0, start.file
        self._end = end
        for number in range(first, start.file):
            self._bytes -= self._sizes.pop(number, 0)
        unknown = range(next(reversed(self._sizes), start.file - 1) + 1, end.file)
        for number in unknown[:FILES_A_CALL]:
            self._sizes[number] = self._size(number)
            self._bytes += self._sizes[number]
        estimated = len(unknown[FILES_A_CALL:]) * self._bytes // max(1, len(self._sizes))
        return max(0, self._bytes + estimated - start.offset + end.offset)

    def _size(self, number: int) -> int:
        try:
            return relay_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return 0
