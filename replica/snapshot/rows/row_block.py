"""Key by which a table is read, and a block of its row images.

Rows of a SELECT are stored as row images of the binlog, under a table map that this client builds. Every decoder of the
stream's rows can therefore decode them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TableKey:
    """Columns that identify and order the rows of a table.

    Attributes:
        index: Name of the index.
        columns: Indexes into the table's columns, in key order.
        ordered: Key bytes sort as the server sorts keys. Otherwise they only show whether two keys are equal.
    """

    index: str
    columns: tuple[int, ...]
    ordered: bool

    @property
    def is_row(self) -> bool:
        """Whether the table has no key, so that equal rows cannot be distinguished, see whole_rows.py."""
        return not self.columns


WHOLE_ROW: Final = TableKey("", (), ordered=False)
"""Key of a table without a key: the key bytes of a row are its image."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Row images of one table map, one after the other, with the key bytes of each row.

    Attributes:
        table_map: Body of a TABLE_MAP event, built by this client or logged in the stream.
        width: Number of columns of the table map.
        images: uint8, all images.
        ends: int64, end of each row's image in `images`.
        keys: uint8, all key bytes; the same array as `images` if the key is the whole row.
        key_ends: int64, end of each row's key bytes in `keys`.
        left_out: Numbers of the columns that the images omit.
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
        """Number of rows."""
        return len(self.ends)

    def image(self, row: int) -> npt.NDArray[Any]:
        """Return a view of a row's image."""
        return self.images[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])]

    def key(self, row: int) -> bytes:
        """Return a row's key bytes."""
        return self.keys[int(self.key_ends[row - 1]) if row else 0 : int(self.key_ends[row])].tobytes()
