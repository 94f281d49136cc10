"""Memory map of a relay file range, with which a scan uses constant memory whatever the size of a transaction.

Mapped pages count as memory of the process while they are in use. A scan calls `passed` to release the pages that it
has processed. Another scan may read them again.
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
    """Mapped range. Its bytes stay valid as long as `data` is referenced.

    Raises:
        DataLossError: The file was removed.
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
        """Release the memory of the range before `offset`."""
        end = (self._start + offset) // mmap.PAGESIZE * mmap.PAGESIZE
        if end < self._gone:  # another scan has started
            self._gone = self._first
        if end > self._gone:
            self._map.madvise(mmap.MADV_DONTNEED, self._gone, end - self._gone)
            self._gone = end
