"""The part of a stream's tables that is delivered while they are being read, as plain values that pickle.

Tables are delivered in the order of their names, and within a table in the order of its key. A change of the stream
counts where its row lies in what is delivered; the rest comes later, when the table is read up to there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema


class OpenTable(NamedTuple):
    """A table that is not simply delivered by its name.

    `columns`: those of the key, in key order, as the catalog has them. `upto`: the canonical bytes of the last key that
    is delivered; None: all of the table is.
    """

    name: tuple[str, str]
    columns: tuple[ColumnSchema, ...]
    upto: bytes | None


@dataclass(frozen=True, slots=True)
class DeliveredKeys:
    """The delivered part: the tables up to the name `after`, in the byte order of UTF-8, but for `open` and `pending`.

    `pending`: tables of which nothing is delivered, whatever their names.
    """

    after: tuple[str, str] | None
    open: tuple[OpenTable, ...] = ()
    pending: tuple[tuple[str, str], ...] = ()

    def of(self, name: tuple[str, str]) -> OpenTable | bool:
        """Return whether the table is delivered, or how far."""
        for table in self.open:
            if table.name == name:
                return table.upto is None or table
        if name in self.pending or self.after is None:
            return False
        return tuple(map(str.encode, name)) <= tuple(map(str.encode, self.after))
