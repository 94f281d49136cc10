"""Rows of a table's SELECT, gathered as row images: stretches of a result in, blocks of images with key bytes out.

In: a table's definition, the key that its rows are told apart by, and the columns of the result of `select_list`. Out:
`RowBlock`s. Refused: a result that is not of the definition (SchemaError), bytes that are no rows (ProtocolError).
Where the key is ordered, rows have to come in its order: one that does not shows that the server sorts it otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from replica.errors import ProtocolError
from replica.native.array_memory import ArrayMemory
from replica.native.arrays import address
from replica.rows.types.keys import key_records
from replica.snapshot.rows.kept_key import kept_key, key_parts
from replica.snapshot.rows.kernel_result_rows import transcode_rows
from replica.snapshot.rows.records import SLACK, BlockState, ResultColumnRecord, RowOutcome
from replica.snapshot.rows.result_plan import plan_result, refusal
from replica.snapshot.rows.row_block import RowBlock
from replica.snapshot.rows.table_map import table_map_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.protocol.packets.prepared import ResultColumn
    from replica.schema.table import TableSchema
    from replica.snapshot.connection.result_stream import RowStretch
    from replica.snapshot.rows.row_block import TableKey

FIRST_IMAGES: Final = 1 << 20
FIRST_ROWS: Final = 1 << 13
MOST_EXPECTED: Final = 64 << 20
"""What room is made for at once where the first rows let expect it: twice a chunk, as long as it is not overrun."""
MAX_BLOCK: Final = 3 << 30
"""The most bytes of images in a block. One row is at most the server's largest packet, 1 GB; who gathers rows takes a
block long before."""
_SPOT_WORDS: Final = 2
_Number = TypeVar("_Number", np.uint8, np.int64)


class ResultRows:
    """The rows of one table, as they come from one SELECT or several, until a block of them is taken."""

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
        """Check the result's columns; SchemaError if they are not those of the definition.

        Args:
            schema: the table's definition.
            key: what tells its rows apart; None: key bytes are not wanted.
            columns: those of the result.
            expected: so many rows are likely to come: their room is made once, not again and again.
            memory: where the room for images comes from.
            defined: the table with all its columns, where `schema` is without some.
            left_out: the numbers of those.
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
        self._last_key = b""  # of the row before the first of the block
        self._taken = 0
        self._begin(FIRST_IMAGES, max(FIRST_ROWS, min(expected, MOST_EXPECTED >> 3)), FIRST_IMAGES >> 2)

    @property
    def rows(self) -> int:
        """The number of rows in the block that is being gathered."""
        return int(self._state["rows"])

    @property
    def size(self) -> int:
        """The bytes of images and keys in it."""
        return int(self._state["images_used"]) + int(self._state["keys_used"])

    def add(self, stretch: RowStretch) -> None:
        """Append the rows of a stretch. Of one that is refused the rows before stay."""
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
        """Return all rows that were added since the last block, and begin the next one."""
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
        """Return the key of the last row that was added, as an offset keeps it: see kept_key.py."""
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
        """Make room for the next row, and for as many as are expected; else twice as much as there was."""
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
        """Return the bytes to make room for: memory that is not used costs nothing, copying what is used does."""
        likely = used * self._expected // max(1, self.rows) + need
        return max(2 * have, used + need, min(likely + likely // 16, MOST_EXPECTED))


def _grown(array: npt.NDArray[_Number], used: int, size: int) -> npt.NDArray[_Number]:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown
