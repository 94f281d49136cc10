"""A range of a relay file, mapped, for walks in the process that plans: its memory does not grow with a transaction.

In: a range. Out: its bytes. Pages come in as they are read, and count as the process's memory as long as they are
mapped, though they are the file's; a walk says what it has passed, and those pages go. They may be read again.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from replica.relay_log.files.lookup import purged
from replica.relay_log.location import relay_number

if TYPE_CHECKING:
    from replica.relay_log.log import RelayRange


class MappedRelayRange:
    """The range. Its bytes stay valid as long as `data` is held.

    Raises:
        DataLossError: the file was removed.
    """

    def __init__(self, part: RelayRange) -> None:
        try:
            with open(part.path, "rb") as file:  # noqa: PTH123  (as tasks open it)
                self._map = mmap.mmap(file.fileno(), part.end, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise purged(relay_number(Path(part.path))) from None
        self._start = part.start
        self._first = self._gone = part.start // mmap.PAGESIZE * mmap.PAGESIZE
        self.data = memoryview(self._map)[part.start :]

    def passed(self, offset: int) -> None:
        """Give back the memory of what lies before `offset` of the range."""
        end = (self._start + offset) // mmap.PAGESIZE * mmap.PAGESIZE
        if end < self._gone:  # another walk
            self._gone = self._first
        if end > self._gone:
            self._map.madvise(mmap.MADV_DONTNEED, self._gone, end - self._gone)
            self._gone = end
