"""Row changes of a part of the log by transaction, the common input of both outputs of `tail`.

`Changes.of` filters rows by tables (the names of the reading), transactions (its selection) and operations. It yields
`TransactionRows`: the selected rows of one transaction in one batch, with the text of each row in the output's format.
A large transaction comes in several pieces, and `first` marks its first piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.dump.rows.rows_text import RangeOrigin
from replica.row_reader.selection import ChosenTransactions
from replica.rows.scan import records as r

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from replica.dump.rows.rows_text import RowTexts, Texts
    from replica.log_reader.part import Part
    from replica.row_reader.reading import Reading
    from replica.rows.decode.batch import ChangeBatch, Groups

OPERATIONS = {"insert": r.OP_INSERT, "update": r.OP_UPDATE, "delete": r.OP_DELETE}


class TransactionRows(NamedTuple):
    """Rows of one transaction, as row numbers of the batch in order."""

    group: int
    """Number of the transaction in its part."""
    numbers: list[int]
    batch: ChangeBatch
    texts: Texts
    first: bool

    def text(self, number: int) -> memoryview:
        """Return the text of one row; valid until the next batch."""
        ends = self.texts.ends
        return self.texts.data[int(ends[number - 1]) if number else 0 : int(ends[number])]


@dataclass(slots=True)
class ChosenInDomains(ChosenTransactions):
    """Selection of transactions that may also be limited to some domains."""

    domains: frozenset[int] = field(default_factory=frozenset)

    @property
    def everything(self) -> bool:
        return not self.domains and ChosenTransactions.everything.__get__(self)

    def shown(self, groups: Groups) -> npt.NDArray[np.bool_]:
        shown = ChosenTransactions.shown(self, groups)
        return shown & np.isin(groups.domain, list(self.domains)) if self.domains else shown


@dataclass(slots=True)
class Changes:
    """Changes of parts. `ops`: numbers of the selected operations, None for all."""

    reading: Reading
    texts: RowTexts
    ops: frozenset[int] | None = None

    def of(self, part: Part) -> Iterator[TransactionRows]:
        """Yield the selected rows of a part, in order."""
        place = RangeOrigin(part.name, part.piece.offset)
        last = -1
        for batch, shown, gtids in self.reading.rows(part):
            wanted = np.ones(batch.rows, np.bool_) if shown is None else shown[batch.group]
            if self.ops is not None:
                wanted &= np.isin(batch.op, list(self.ops))
            numbers = np.flatnonzero(wanted)
            if not len(numbers):
                continue
            texts = self.texts.write(batch, place, shown=shown, gtids=gtids)
            groups = batch.group[numbers]
            borders = np.flatnonzero(np.diff(groups)) + 1
            for piece in np.split(numbers, borders):
                group = int(batch.group[piece[0]])
                yield TransactionRows(group, piece.tolist(), batch, texts, group != last)
                last = group
