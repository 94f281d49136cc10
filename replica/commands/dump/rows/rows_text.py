"""Text of a batch of row changes in one of the notations: buffers and calls of the row kernel.

In: batches of a RangeDecoder in the shape `variant`. Out: bytes, and the end of each row's text in them. The buffers
grow to the largest row and are reused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.commands.dump.rows import kernel_rows as k
from replica.commands.dump.rows import kernel_values as kv
from replica.commands.dump.rows.kernel_text import JSON
from replica.commands.dump.text import as_json
from replica.errors import ProtocolError, SchemaError
from replica.native.arrays import address
from replica.protocol.constants import ColumnType
from replica.rows.types.arrow_arrays import array_of, array_of_values, repeated
from replica.rows.types.entry import Json
from replica.rows.types.kinds import Kind
from replica.rows.types.types import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.slots import CompiledTable
    from replica.rows.tables.plan import ColumnPlan

# A `Program` is memory that the kernel reads. Columns are in table order, without hidden columns, which VARIANT lacks
# too.


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
        """Return the addresses for current rows and for old versions. The two are equal unless `add` was called for
        both.
        """
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


Bytes = "npt.NDArray[np.uint8]"

FIRST_BYTES: Final = 1 << 20
FIRST_NOTES: Final = 1 << 12


class Texts(NamedTuple):
    """Texts of a batch.

    `data` is valid until the next batch. `ends[i]` (int64) is the end of the text of row i, which is empty for a row
    that is not shown.
    """

    data: memoryview
    ends: npt.NDArray[np.int64]


@dataclass(slots=True)
class RangeOrigin:
    """Source of a range: the name of its file, and its byte offset there."""

    file: str
    offset: int


class RowTexts:
    """Writer of batches in one notation. `compile_` returns the program of a new table."""

    def __init__(self, notation: int, compile_: Callable[[CompiledTable], Program]) -> None:
        self._notation = notation
        self._compile = compile_
        self._programs: dict[CompiledTable, Program] = {}
        self._out = np.empty(FIRST_BYTES, np.uint8)
        self._spliced = np.empty(0, np.uint8)
        self._notes = np.empty(FIRST_NOTES, kv.NoteRecord.dtype)
        self._pieces = {
            "gtid_piece": piece('{"gtid":"'),
            "ordinal_piece": piece('","ordinal":'),
            "time_piece": piece(',"commit_time":"'),
            "current_piece": piece(',"history":false'),
            "history_piece": piece(',"history":true'),
        }
        self._file = ""

    def write(
        self,
        batch: ChangeBatch,
        place: RangeOrigin,
        *,
        shown: npt.NDArray[np.bool_] | None = None,
        gtids: pa.LargeStringArray | None = None,
    ) -> Texts:
        """Write a batch.

        Args:
            batch: the row changes.
            place: source of the batch's range.
            shown: whether the rows of a group are selected, bool by group; None for all.
            gtids: GTIDs by group, if they are not three numbers.

        Raises:
            SchemaError: an image has no column that an SQL statement could use.
            ProtocolError: a value is of no known kind.
        """
        record, keep = self._record(batch, place, shown, gtids)
        ends = np.empty(batch.rows, np.int64)
        state = np.zeros((), k.TextState.dtype)
        while True:
            status = k.write_rows(
                address(record),
                batch.rows,
                self._notation,
                address(self._out),
                len(self._out),
                address(self._notes),
                len(self._notes),
                address(ends),
                address(state),
            )
            if status != k.ROOM:
                break
            self._grow(state)
        del keep
        if status != k.DONE:
            raise self._fault(status, batch, int(state["row"]))
        used, noted = int(state["used"]), int(state["notes"])
        if noted:
            return self._with_floats(used, noted, ends)
        return Texts(self._out.data[:used], ends)

    def _record(
        self,
        batch: ChangeBatch,
        place: RangeOrigin,
        shown: npt.NDArray[np.bool_] | None,
        gtids: pa.LargeStringArray | None,
    ) -> tuple[Records, list[object]]:
        """Return the kernel's record of the batch, and the objects that have to live as long."""
        assert batch.event is not None  # noqa: S101  (decoders of VARIANT provide them)
        assert batch.events is not None  # noqa: S101
        record = np.zeros((), k.BatchRecord.dtype)
        slots = np.ascontiguousarray(batch.events["slot"][batch.event])
        programs = self._addresses(batch, slots)
        keep: list[object] = [slots, programs]
        record["op"] = address(batch.op)
        record["slot"] = address(slots)
        record["group"] = address(batch.group)
        record["ordinal"] = address(batch.ordinal)
        record["programs"] = address(programs)
        record["groups"] = address(batch.groups.records)
        starts = np.ascontiguousarray(batch.groups.start)
        record["starts"] = address(starts)
        keep.append(starts)
        record["origin"] = place.offset
        for side, name in ((batch.before, "before"), (batch.after, "after")):
            _, offsets, data = side[0].field("value").buffers()
            record[name], record[f"{name}_data"] = offsets.address, data.address if data else 0
        if batch.history is not None:
            # `to_numpy` of booleans, and a scalar for `fill_null`, would import pandas.
            unknown = array_of(np.full(batch.rows, -1, np.int8))
            filled = pc.coalesce(pc.cast(batch.history, pa.int8()), unknown)
            flags = np.frombuffer(filled.buffers()[1], np.int8)[filled.offset : filled.offset + batch.rows]
            record["history"] = address(flags)
            keep.append(flags)
        if shown is not None:
            mask = shown.astype(np.int8)
            record["shown"] = address(mask)
            keep.append(mask)
        if gtids is not None:
            record["gtids"], record["gtids_data"] = (b.address for b in gtids.buffers()[1:])
        if place.file != self._file or "position_piece" not in self._pieces:
            self._file = place.file
            self._pieces["position_piece"] = piece(f'","file":{as_json(place.file)},"position":')
        for at, data in self._pieces.items():
            record[at] = address(data), len(data)
        return record, keep

    def _addresses(self, batch: ChangeBatch, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        assert batch.slots is not None  # noqa: S101
        used = np.flatnonzero(np.bincount(slots)).tolist()
        found = np.zeros((used[-1] + 1, k.PROGRAMS), np.int64)
        for slot in used:
            table = batch.slots.table(slot)
            if table not in self._programs:
                self._programs[table] = self._compile(table)
            found[slot] = self._programs[table].all_addresses()
        return found

    def forget(self) -> None:
        """Drop the programs, because their tables have changed or no longer exist."""
        self._programs.clear()

    def _grow(self, state: Records) -> None:
        need, notes = int(state["need"]), int(state["need_notes"])
        if need > len(self._out):
            larger = np.empty(max(need, 2 * len(self._out)), np.uint8)
            used = int(state["used"])
            larger[:used] = self._out[:used]
            self._out = larger
        if notes > len(self._notes):
            more = np.empty(max(notes, 2 * len(self._notes)), self._notes.dtype)
            more[: len(self._notes)] = self._notes
            self._notes = more

    def _with_floats(self, used: int, noted: int, ends: npt.NDArray[np.int64]) -> Texts:
        """Insert the floats, each with the fewest digits that give the same float again."""
        notes = self._notes[:noted]
        kinds, bits = notes["kind"], notes["bits"]
        double = kinds == kv.NOTE_DOUBLE
        doubles = _shortest(bits[double].view(np.float64), json=self._notation == JSON)
        narrow = bits[~double].astype(np.uint32).view(np.float32)
        as_double = bool((kinds == kv.NOTE_FLOAT_AS_DOUBLE).any())
        floats = _shortest(narrow.astype(np.float64) if as_double else narrow, json=self._notation == JSON)
        (double_ends, double_text, size), (float_ends, float_text, more) = _text_of(doubles), _text_of(floats)
        need = used + size + more
        if len(self._spliced) < need:
            self._spliced = np.empty(need * 5 // 4, np.uint8)
        size = k.put_floats(
            address(self._out),
            used,
            address(self._notes),
            noted,
            double_ends,
            double_text,
            float_ends,
            float_text,
            address(self._spliced),
            address(ends),
            len(ends),
        )
        return Texts(self._spliced.data[:size], ends)

    def _fault(self, status: int, batch: ChangeBatch, row: int) -> Exception:
        table = ".".join(batch.tables[int(batch.table[row])])
        if status == k.NO_COLUMNS:
            return SchemaError(
                f"A row image of {table} has no column by which an SQL statement could find or set the row.",
                hint="Use --json, or set binlog_row_image=FULL on the primary.",
            )
        return ProtocolError(f"a value of {table} is of no known kind")


def _shortest(numbers: npt.NDArray[np.float64] | npt.NDArray[np.float32], *, json: bool) -> pa.StringArray:
    texts = array_of(numbers).cast(pa.string())
    negative_zero = (numbers == 0) & np.signbit(numbers)
    if negative_zero.any():  # "-0" would be read as the integer 0, which has no sign
        texts = pc.if_else(array_of(negative_zero), repeated("-0.0", len(numbers)), texts)
    finite = np.isfinite(numbers)
    if json and not finite.all():  # no server stores them, but damaged bytes may contain them
        texts = array_of_values(
            [t if f else f'"{t}"' for t, f in zip(texts.to_pylist(), finite.tolist(), strict=True)], pa.string()
        )
    return texts


def _text_of(texts: pa.StringArray) -> tuple[int, int, int]:
    """Return (address of the offsets, address of the characters, number of bytes); zeros without texts."""
    if not len(texts):
        return 0, 0, 0
    _, ends, data = texts.buffers()
    return ends.address, data.address, data.size
