"""Text that is the same for all rows of a table: one program of the row kernel for each table map and operation.

In: the sides of a row with the text around each value, from the module of a notation. Out: a `Program`, memory that the
kernel reads. Columns are in table order, without hidden columns, which VARIANT lacks too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replica.dump.rows import kernel_rows as k
from replica.dump.rows import kernel_values as kv
from replica.native.arrays import address
from replica.protocol.constants import ColumnType
from replica.rows.types.entry import Json
from replica.rows.types.kinds import Kind
from replica.rows.types.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.protocol.rows.column_def import ColumnDef
    from replica.rows.decode.slots import CompiledTable
    from replica.rows.tables.plan import ColumnPlan

BEFORE, AFTER = 0, 1


class Shown(NamedTuple):
    """A column that VARIANT images can hold. `rank` is its index in the sorted names."""

    plan: ColumnPlan
    column: ColumnDef
    rank: int
    style: int


@dataclass(frozen=True, slots=True)
class ColumnText:
    """The form of one column of a side: text before and after its value. `null_suffix` follows a NULL."""

    shown: Shown
    prefix: str
    suffix: str = ""
    null_suffix: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One image of a row with the text around it."""

    image: int
    before: str
    between: str
    after: str
    columns: Sequence[ColumnText]

    def ending(self, text: str) -> Side:
        """Return the same side with more text at its end."""
        return replace(self, after=self.after + text)


@dataclass(slots=True)
class Program:
    """Templates of the operations of one table, as memory. `addresses[op]` is the kernel's input."""

    addresses: list[int] = field(default_factory=list)
    _keep: list[object] = field(default_factory=list)

    def add(self, names: int, sides: Sequence[Side]) -> None:
        """Add the next operation, with its sides in writing order."""
        record = np.zeros((), k.RowProgram.dtype)
        record["side_count"], record["names"] = len(sides), names
        for target, side in zip(record["sides"], sides, strict=False):
            columns = np.zeros(max(1, len(side.columns)), k.ColumnProgram.dtype)
            for row, column in zip(columns, side.columns, strict=False):
                row["rank"], row["style"] = column.shown.rank, column.shown.style
                row["prefix"] = self._piece(column.prefix)
                row["suffix"] = self._piece(column.suffix)
                row["null_suffix"] = self._piece(column.null_suffix)
            target["image"] = side.image
            target["open"] = self._piece(side.before)
            target["between"] = self._piece(side.between)
            target["close"] = self._piece(side.after)
            target["columns"], target["count"] = self._hold(columns), len(side.columns)
        self.addresses.append(self._hold(record))

    def all_addresses(self) -> list[int]:
        """Return the addresses for current rows and for old versions. They are the same unless both were added."""
        return self.addresses if len(self.addresses) == k.PROGRAMS else self.addresses * 2

    def _piece(self, text: str) -> tuple[int, int]:
        """Return a TemplatePiece whose memory lives as long as the program."""
        data = piece(text)
        return self._hold(data), len(data)

    def _hold(self, array: npt.NDArray[Any]) -> int:
        self._keep.append(array)
        return address(array)


def piece(text: str) -> npt.NDArray[np.uint8]:
    """Return text as bytes that stay in place, followed by SLACK readable bytes."""
    data = text.encode()
    return np.frombuffer(data + bytes(kv.SLACK), np.uint8)[: len(data)]


def dictionary(metadata: bytes) -> list[str]:
    """Return the names in a VARIANT dictionary, in their order."""
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    offsets = [int.from_bytes(metadata[1 + size * i : 1 + size * (i + 1)], "little") for i in range(1, count + 2)]
    text = metadata[1 + size * (count + 2) :]
    return [text[start:end].decode() for start, end in pairwise(offsets)]


def shown_columns(table: CompiledTable, *, unnamed: bool = False) -> list[Shown]:
    """Return the columns that images can hold, in table order.

    With `unnamed`, the table's metadata does not distinguish text from bytes.
    """
    table.decode  # noqa: B018  (compiles the dictionary)
    assert table.metadata is not None, "rows are decoded as VARIANT"  # noqa: S101
    ranks = {name: rank for rank, name in enumerate(dictionary(table.metadata.tobytes()))}
    return [
        Shown(plan, column, ranks[plan.name], _style(plan, column, unnamed=unnamed))
        for plan, column in zip(table.layout.columns, table.table_map.columns, strict=True)
        if plan.name in ranks
    ]


def _style(plan: ColumnPlan, column: ColumnDef, *, unnamed: bool) -> int:
    if KINDS[plan.kind].json is Json.YEAR:
        return kv.STYLE_YEAR
    if unnamed and column.collation is None and plan.kind in (Kind.BYTES, Kind.PADDED_BYTES):
        if column.type == ColumnType.STRING:
            return kv.STYLE_GUESS_PADDED
        return kv.STYLE_NONE if column.type == ColumnType.GEOMETRY else kv.STYLE_GUESS
    return kv.STYLE_NONE
