"""The texts of a range's rows, handed out event by event to the code that lists the events beside them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.dump.rows.rows_text import RangeOrigin
from replica.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.dump.rows.rows_text import RowTexts
    from replica.log_reader.part import Part
    from replica.protocol.events.binlog_file import FileEvent
    from replica.row_reader.reading import ShownRows


class Chunk(NamedTuple):
    """Rows of one rows event in one batch; `text` is valid until the next chunk is asked for."""

    group: int
    """Where the group that commits them starts in the range."""
    event: int
    """Where their rows event starts."""
    rows: int
    text: memoryview


class RowFeed:
    """The texts of a range. Rows come in the order of the log; those of an XA transaction where it is committed.

    `failure` is why there are no more of them, known ahead of the events that stand before it.
    """

    def __init__(self, part: Part, rows: Iterator[ShownRows], texts: RowTexts) -> None:
        self.failure: ProtocolError | None = None
        self._chunks = _chunks(part, rows, texts)
        self._next: Chunk | None = None
        self._go_on()

    def fails_at(self, found: FileEvent) -> bool:
        """Tell whether the event is the one whose rows cannot be read."""
        offset = None if self.failure is None else self.failure.offset
        return offset is not None and found.offset <= offset < found.offset + len(found.event)

    def take(self, group: int, event: int | None = None) -> Iterator[Chunk]:
        """Yield the next rows, as long as they belong to this group and this event (None: any event)."""
        while self._next is not None and self._next.group == group and event in (None, self._next.event):
            yield self._next
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._next = next(self._chunks, None)
        except ProtocolError as error:
            self._next, self.failure = None, error


def _chunks(part: Part, rows: Iterator[ShownRows], texts: RowTexts) -> Iterator[Chunk]:
    place = RangeOrigin(part.name, part.piece.offset)
    for batch, shown, gtids in rows:
        assert batch.events is not None  # noqa: S101  (decoders of VARIANT give them)
        assert batch.event is not None  # noqa: S101
        text, ends = texts.write(batch, place, shown=shown, gtids=gtids)
        starts = batch.events["start"][batch.event]
        groups = batch.groups.start[batch.group]
        borders = np.flatnonzero((np.diff(starts) != 0) | (np.diff(groups) != 0)) + 1
        bounds = [0, *borders.tolist(), batch.rows]
        for first, last in pairwise(bounds):
            begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1])
            if end > begin:
                yield Chunk(int(groups[first]), int(starts[first]), last - first, text[begin:end])
