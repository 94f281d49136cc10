"""The ranges of a file that hold wanted rows -> partitions.

In: ranges in the file's order, with what is known of their tables and the XA groups they need from before. Out: of a
plain file, partitions of one to two times RANGE_BYTES (a larger transaction is one of its own); of any other, one.
Neighbours that are read alike become one stretch, so that a task decodes them in one go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming_source.files.partition import RANGE_BYTES, FileAccess, FilePartition, PreparedInFile, Stretch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.files.binlog import FileRange
    from streaming_source.selection.group_extent import GroupExtent
    from streaming_source.selection.resolver import Catalog


class FileCutter:
    """A cutter that puts the stretches of one file together."""

    def __init__(self, access: FileAccess, *, seekable: bool) -> None:
        self._access = access
        self._seekable = seekable
        self._partitions: list[FilePartition] = []
        self._stretches: list[Stretch] = []
        self._bytes = 0

    def add(self, part: FileRange, catalog: Catalog, carried: Sequence[PreparedInFile], extent: GroupExtent) -> None:
        """Add a range with wanted rows; one that goes on where the last ended, with the same tables, makes it
        longer.
        """
        stretch = Stretch(part.offset, part.end, part.description, catalog, tuple(carried), extent)
        last = self._stretches[-1] if self._stretches else None
        if self._seekable and last is not None and last.end == stretch.start and last.catalog == stretch.catalog:
            outside = [g for g in carried if not (g.access == self._access and last.start <= g.start < last.end)]
            whole = last.extent and last.extent.joined(extent)
            self._stretches[-1] = replace(last, end=stretch.end, carried=(*last.carried, *outside), extent=whole)
        else:
            self._stretches.append(stretch)
        self._bytes += part.end - part.offset
        if self._seekable and self._bytes >= RANGE_BYTES:
            self._close()

    def partitions(self) -> list[FilePartition]:
        self._close()
        return self._partitions

    def _close(self) -> None:
        if self._stretches:
            self._partitions.append(FilePartition(self._access, tuple(self._stretches)))
        self._stretches, self._bytes = [], 0
