"""Rows of a table's SELECT, collected as row images with key bytes.

`ResultRows` takes runs of a result and returns `RowBlock`s. It refuses a result that does not match the definition
(SchemaError) and malformed rows (ProtocolError). For an ordered key, it also refuses rows that do not ascend, because
the server then sorts the key in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import ArrayMemory, address
from replica.rows.types.keys import key_records
from replica.snapshot.rows.kept_key import kept_key, key_parts
from replica.snapshot.rows.kernel_result_rows import transcode_rows
from replica.snapshot.rows.result_plan import SLACK, BlockState, ResultColumnRecord, RowOutcome, plan_result, refusal
from replica.snapshot.rows.row_block import RowBlock
from replica.snapshot.rows.table_map import table_map_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.protocol.packets.results import ResultColumn
    from replica.schema.table import TableSchema
    from replica.snapshot.connection.packets import RowStretch
    from replica.snapshot.rows.row_block import TableKey

FIRST_IMAGES: Final = 1 << 20
FIRST_ROWS: Final = 1 << 13
MOST_EXPECTED: Final = 64 << 20
"""Maximum bytes to allocate ahead, based on the first rows: twice a chunk that does not exceed its limit."""
MAX_BLOCK: Final = 3 << 30
"""Maximum bytes of images in a block. One row has at most the largest packet, 1 GB, and callers take a block much
earlier.
"""
_SPOT_WORDS: Final = 2
_Number = TypeVar("_Number", np.uint8, np.int64)


class ResultRows:
    """Rows of one table from one or more SELECTs, until the caller takes them as a block."""

    def __init__(
        self,
        schema: TableSchema,
        key: TableKey | None,
        columns: Sequence[ResultColumn],
        *,
        expected: int = FIRST_ROWS,
        memory: ArrayMemory | None = None,
        defined: TableSchema | None = None,
        left_out: tuple[int, ...] = (),
    ) -> None:
        """Check the result's columns against the definition.

        Args:
            schema: Definition of the table.
            key: Key of the table; None if key bytes are not needed.
            columns: Columns of the result.
            expected: Expected number of rows, for one allocation instead of several.
            memory: Source of the memory for images.
            defined: The table with all columns, if `schema` lacks some.
            left_out: Numbers of the columns that `schema` lacks.

        Raises:
            SchemaError: The columns do not match the definition.
        """
        self._memory = memory or ArrayMemory()
        self._schema, self._key = schema, key
        self._expected = expected
        self._plans = plan_result(schema, columns)
        self._table_map = table_map_body(defined or schema)
        self._left_out = left_out
        parts = key_parts(schema, key) if key is not None else ()
        self._parts = key_records(parts)
        self._spots = np.zeros(_SPOT_WORDS * max(1, len(parts)), np.int64)
        self._columns = np.zeros(len(self._plans), ResultColumnRecord.dtype)
        places = {part.column: number for number, part in enumerate(parts)}
        for number, (record, plan) in enumerate(zip(self._columns, self._plans, strict=True)):
            for field in ("transcoding", "came", "width", "most", "scale"):
                record[field] = getattr(plan, field)
            record["key"] = places.get(number, -1)
        fixed = sum(plan.width if plan.width > 0 else -plan.width for plan in self._plans)
        self._widest = fixed + (len(self._plans) + 7) // 8 + SLACK
        self._last_key = b""  # key of the last row of the previous block
        self._taken = 0
        self._begin(FIRST_IMAGES, max(FIRST_ROWS, min(expected, MOST_EXPECTED >> 3)), FIRST_IMAGES >> 2)

    @property
    def rows(self) -> int:
        """Number of rows in the current block."""
        return int(self._state["rows"])

    @property
    def size(self) -> int:
        """Bytes of images and keys in the current block."""
        return int(self._state["images_used"]) + int(self._state["keys_used"])

    def add(self, stretch: RowStretch) -> None:
        """Append the rows of a run; the rows before a refused row stay in the block."""
        state = self._state
        state["position"] = stretch.start
        first = self.rows == 0
        while True:
            outcome = RowOutcome(
                transcode_rows(
                    address(stretch.data),
                    stretch.end,
                    int(stretch.joined),
                    address(self._columns),
                    len(self._columns),
                    self._widest,
                    address(self._parts),
                    len(self._parts),
                    int(self._key is not None and self._key.ordered),
                    address(self._spots),
                    address(state),
                )
            )
            if outcome == RowOutcome.DONE:
                break
            if outcome > RowOutcome.GROW_KEYS:
                column = int(state["column"])
                name = self._plans[column].name if column >= 0 else None
                raise refusal(outcome, self._schema.name, self._taken + self.rows, name)
            self._grow(outcome)
        if first and self.rows and self._key is not None and self._key.ordered:
            key = self._keys[: int(self._key_ends[0])].tobytes()
            if key <= self._last_key:
                raise refusal(RowOutcome.OUT_OF_ORDER, self._schema.name, self._taken, None)

    def block(self) -> RowBlock:
        """Return all rows since the last block, and start a new block."""
        rows, images, keys = self.rows, int(self._state["images_used"]), int(self._state["keys_used"])
        block = RowBlock(
            self._table_map,
            len(self._plans) + len(self._left_out),
            self._images[:images],
            self._ends[:rows],
            self._keys[:keys],
            self._key_ends[:rows],
            self._left_out,
        )
        if rows:
            self._last_key = block.key(rows - 1)
            self._last_image = block.image(rows - 1).tobytes()
        self._taken += rows
        self._begin(FIRST_IMAGES, len(self._ends), FIRST_IMAGES >> 2)
        return block

    def last_key(self) -> bytes:
        """Return the kept key of the last row, see kept_key.py."""
        if self._key is None or self.rows + self._taken == 0:
            raise ValueError("there is no last key: no row was added, or the table has no key")
        if self.rows == 0:
            return kept_key(self._schema, self._key, self._last_image)
        begin = int(self._ends[self.rows - 2]) if self.rows > 1 else 0
        image = self._images[begin : int(self._ends[self.rows - 1])].tobytes()
        return kept_key(self._schema, self._key, image)

    def _begin(self, images: int, rows: int, keys: int) -> None:
        self._state = np.zeros((), BlockState.dtype)
        self._images = self._memory.take(images)
        self._keys = np.empty(keys, np.uint8)
        self._ends, self._key_ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._bind()

    def _bind(self) -> None:
        state = self._state
        for field, array in (
            ("images", self._images),
            ("keys", self._keys),
            ("ends", self._ends),
            ("key_ends", self._key_ends),
        ):
            state[field] = address(array)
        state["images_room"], state["keys_room"] = len(self._images), len(self._keys)
        state["rows_room"] = len(self._ends)

    def _grow(self, outcome: RowOutcome) -> None:
        """Extend the memory for the next row and the expected rows, at least to twice its size."""
        need, rows = int(self._state["need"]), self.rows
        if outcome == RowOutcome.GROW_ROWS:
            self._ends, self._key_ends = (_grown(a, rows, 2 * len(a)) for a in (self._ends, self._key_ends))
        elif outcome == RowOutcome.GROW_KEYS:
            used = int(self._state["keys_used"])
            self._keys = _grown(self._keys, used, self._room(len(self._keys), used, need))
        else:
            used = int(self._state["images_used"])
            if used + need > MAX_BLOCK:
                raise ProtocolError(
                    f"rows of table {self._schema.name} take more than {MAX_BLOCK} bytes in one block",
                    hint="Read fewer rows at once.",
                )
            images = self._memory.take(min(self._room(len(self._images), used, need), MAX_BLOCK))
            images[:used] = self._images[:used]
            self._images = images
        self._bind()

    def _room(self, have: int, used: int, need: int) -> int:
        """Return the bytes to allocate. Unused memory costs nothing, but copying used memory does."""
        likely = used * self._expected // max(1, self.rows) + need
        return max(2 * have, used + need, min(likely + likely // 16, MOST_EXPECTED))


def _grown(array: npt.NDArray[_Number], used: int, size: int) -> npt.NDArray[_Number]:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown
