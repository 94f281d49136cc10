"""The key that a table is read by, and the row images of a part of it.

A chunk is what one SELECT in key order gave. Its rows are row images as a binlog holds them, under a table map of our
own making, so that all that decodes rows of the stream decodes them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TableKey:
    """The columns that tell the rows of a table apart, and order them.

    `columns` are indexes into the table's columns, in key order. `ordered`: key bytes sort as the server sorts; else
    they only tell equal keys from different ones.
    """

    index: str
    columns: tuple[int, ...]
    ordered: bool

    @property
    def is_row(self) -> bool:
        """Whether nothing but all columns together tells rows apart, and equal rows by nothing: see whole_rows.py."""
        return not self.columns


WHOLE_ROW: Final = TableKey("", (), ordered=False)
"""The key of a table that has none: the bytes of a row's key are those of its image."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Row images of one table map, one behind the other, with the key bytes of each row.

    `table_map` is the body of a TABLE_MAP event, ours or the stream's, `width` its number of columns; every image has
    all of them but those whose numbers are in `left_out`. `ends` and `key_ends` hold, per row, where its image and its
    key bytes end. Where the key is the whole row, `keys` is `images`.
    """

    table_map: bytes
    width: int
    images: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint8]
    key_ends: npt.NDArray[np.int64]
    left_out: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.ends)

    def image(self, row: int) -> npt.NDArray[Any]:
        """Return the bytes of a row's image, a view."""
        return self.images[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])]

    def key(self, row: int) -> bytes:
        """Return a row's key bytes."""
        return self.keys[int(self.key_ends[row - 1]) if row else 0 : int(self.key_ends[row])].tobytes()
