"""Memory of a batch's columns in Arrow's layout: validity bits, values or int32 offsets, and growing data.

One `ColumnSet` holds the columns of one side of the output (before, after, or the flat row). Kernels write through the
addresses in `values`, `valid` and `tails`; `arrays()` wraps the result without a copy. Fresh pages cost as much time as
decoding, so a set can be reset and filled again. The arrays of the previous batch change when their set is refilled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.rows.decode.records import SideRecord, TailRecord
from replica.rows.types.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records

ALIGN: Final = 64
# Without an offset, columns of equal size start at equal page offsets and compete for the same lines of the L1 cache.
STAGGER: Final = 320
# Arrow's string and binary arrays count bytes in int32.
MAX_DATA: Final = (1 << 31) - 1
# Kernels that write words may write a few bytes beyond a value.
SLACK: Final = 64
# A string column has at least SMALL bytes at first. Beyond LARGE bytes it grows to the needed size, without doubling.
SMALL: Final = 16 << 10
LARGE: Final = 16 << 20
# By the type's id, because the field names of lists differ between Spark and Arrow.
_ASSEMBLED: Final = {
    entry.arrow.id: entry.assemble
    for entry in KINDS.values()
    if entry.assemble is not None and isinstance(entry.arrow, pa.DataType)
}


def item_bytes(kind: pa.DataType) -> int:
    """Return the bytes of one value in Arrow's buffer; 0 for types that kernels write as bytes.

    Those are strings, bytes, vectors and geometries.
    """
    return 0 if kind in (pa.string(), pa.binary()) or kind.id in _ASSEMBLED else kind.bit_width // 8


class ColumnSet:
    """Buffers for `rows` rows of columns of these Arrow types, in one allocation, so that large pages save address
    lookups.

    Args:
        kinds: The Arrow types.
        rows: Rows at most.
        capacities: Initial bytes of data of each string column; `first_capacities` gives equal shares.
        nullable: False if the columns have no validity bitmap, because their parent struct has one.
    """

    def __init__(
        self, kinds: Sequence[pa.DataType], rows: int, capacities: Sequence[int], *, nullable: bool = True
    ) -> None:
        self.kinds = tuple(kinds)
        self.capacities = list(capacities)
        count = len(self.kinds)
        items = [item_bytes(kind) for kind in self.kinds]
        strings = [index for index, item in enumerate(items) if not item]
        bitmap = _aligned(rows // 8 + 1)
        values = [_aligned(rows * item if item else (rows + 1) * 4) + STAGGER for item in items]
        data = [_aligned(capacity + SLACK) + STAGGER for capacity in self.capacities]
        starts = np.cumsum([bitmap * count, *values, *data])
        self._memory = np.empty(int(starts[-1]) + ALIGN, np.uint8)
        self._buffer = pa.py_buffer(self._memory)
        self._base = _aligned(address(self._memory))
        self._bitmap = bitmap
        self.valid: npt.NDArray[np.int64] = self._base + np.arange(count, dtype=np.int64) * bitmap
        self.values: npt.NDArray[np.int64] = self._base + starts[:count].astype(np.int64)
        self.tails: Records = np.zeros(len(strings), TailRecord.dtype)
        self.tails["data"] = self._base + starts[count : count + len(strings)]
        self.tails["capacity"] = self.capacities
        self.tails["values"] = self.values[strings]
        self.tail: npt.NDArray[np.int64] = np.zeros(count, np.int64)
        self.tail[strings] = address(self.tails) + np.arange(len(strings)) * TailRecord.BYTES
        for index in strings:
            offset = int(self.values[index]) - address(self._memory)
            self._memory[offset : offset + 4] = 0
        self._strings = strings
        self._makers = [_from_bytes(kind) for kind in self.kinds]
        self._buffers: list[list[pa.Buffer | None]] = []
        for index, item in enumerate(items):
            size = rows * item if item else (rows + 1) * 4
            valid = self._slice(int(self.valid[index]), bitmap) if nullable else None
            self._buffers.append([valid, self._slice(int(self.values[index]), size)])
        for index, tail in zip(strings, self.tails, strict=True):
            self._buffers[index].append(self._slice(int(tail["data"]), int(tail["capacity"])))
        self.side: Records = np.zeros((), SideRecord.dtype)
        self.side["tails"], self.side["tail_count"] = address(self.tails), len(strings)
        self.side["valid"], self.side["stride"] = self._base, bitmap
        self.side["valid_count"] = count if nullable else 0
        self.reset()

    def reset(self) -> None:
        """Forget the rows: all values become valid, and all strings empty."""
        start = self._base - address(self._memory)
        self._memory[start : start + self._bitmap * len(self.kinds)] = 0xFF
        self.tails["end"] = 0
        for place, capacity in enumerate(self.capacities):
            if capacity > self.tails[place]["capacity"]:
                data = np.empty(capacity + SLACK, np.uint8)
                self._buffers[self._strings[place]][2] = pa.py_buffer(data)
                self.tails[place]["data"] = address(data)
                self.tails[place]["capacity"] = capacity

    def want_room(self, tail_address: int, need: int) -> bool:
        """Make space for at least `need` bytes in a string column, from the next `reset` on.

        Returns:
            False if the tail does not belong to this set.

        Raises:
            ProtocolError: The column would exceed 2 GiB.
        """
        place, rest = divmod(tail_address - address(self.tails), TailRecord.BYTES)
        if rest or not 0 <= place < len(self.capacities):
            return False
        if need > MAX_DATA:
            raise ProtocolError(f"a value of {need} bytes does not fit into an Arrow column of 2 GiB")
        self.capacities[place] = need if need > LARGE else max(need, 2 * self.capacities[place])
        return True

    def arrays(self, rows: int) -> list[pa.Array]:
        """Return the first `rows` rows of every column. The arrays keep the memory of this set alive."""
        # Buffers may be longer than their rows: Arrow trims them when it sends them.
        return [
            make(kind, rows, *buffers) if make else pa.Array.from_buffers(kind, rows, buffers)
            for kind, make, buffers in zip(self.kinds, self._makers, self._buffers, strict=True)
        ]

    def text(self, index: int) -> tuple[int, int]:
        """Return the addresses of the offsets and of the data of a string column."""
        return int(self.values[index]), int(self.tails["data"][self._strings.index(index)])

    def _slice(self, start: int, size: int) -> pa.Buffer:
        return self._buffer.slice(start - address(self._memory), size)


def _from_bytes(kind: pa.DataType) -> Callable[..., pa.Array] | None:
    return _ASSEMBLED.get(kind.id)


def first_capacities(kinds: Sequence[pa.DataType], batch_bytes: int) -> list[int]:
    """Divide the initial data space equally among the string columns.

    Together they get twice the `batch_bytes` of a batch.
    """
    count = sum(not item_bytes(kind) for kind in kinds)
    return [max(SMALL, 2 * batch_bytes // count)] * count if count else []


def _aligned(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN
