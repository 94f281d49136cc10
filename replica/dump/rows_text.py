"""A batch of row changes -> their text, in one of the notations: the row kernel's buffers, and its calls.

In: batches of a RangeDecoder in the shape `variant`. Out: bytes, and where the text of each row ends in them. Buffers
grow to the largest row and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.dump import kernel_rows as k
from replica.dump import kernel_values as kv
from replica.dump.json_text import as_json
from replica.dump.kernel_escapes import JSON
from replica.dump.templates import Program, piece, write_piece
from replica.errors import ProtocolError, SchemaError
from replica.native.arrays import address

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.slots import Table

Bytes = "npt.NDArray[np.uint8]"

FIRST_BYTES: Final = 1 << 20
FIRST_NOTES: Final = 1 << 12


class Texts(NamedTuple):
    """`data` is valid until the next batch; `ends[i]` is where the text of row i ends, empty for rows not shown."""

    data: memoryview
    ends: npt.NDArray[np.int64]


@dataclass(slots=True)
class Place:
    """Where a range comes from: its file's name and offset there."""

    file: str
    offset: int


class RowTexts:
    """Writes batches in one notation; `compile_` makes the program of a table that was not met before."""

    def __init__(self, notation: int, compile_: Callable[[Table], Program]) -> None:
        self._notation = notation
        self._compile = compile_
        self._programs: dict[Table, Program] = {}
        self._out = np.empty(FIRST_BYTES, np.uint8)
        self._spliced = np.empty(0, np.uint8)
        self._notes = np.empty((FIRST_NOTES, kv.NOTE_BYTES // 8), np.int64)
        self._pieces = {
            k.BATCH_GTID_PIECE: piece('{"gtid":"'),
            k.BATCH_ORDINAL_PIECE: piece('","ordinal":'),
            k.BATCH_TIME_PIECE: piece(',"commit_time":"'),
            k.BATCH_CURRENT_PIECE: piece(',"history":false'),
            k.BATCH_HISTORY_PIECE: piece(',"history":true'),
        }
        self._file = ""

    def write(
        self,
        batch: ChangeBatch,
        place: Place,
        *,
        shown: npt.NDArray[np.bool_] | None = None,
        gtids: pa.LargeStringArray | None = None,
    ) -> Texts:
        """`shown`: per group, whether its rows are asked for. `gtids`: per group, where they are not three numbers."""
        record, keep = self._record(batch, place, shown, gtids)
        ends = np.empty(batch.rows, np.int64)
        state = np.zeros(k.STATE_WORDS, np.int64)
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
            raise self._fault(status, batch, int(state[k.STATE_ROW // 8]))
        used, noted = int(state[k.STATE_USED // 8]), int(state[k.STATE_NOTES // 8])
        if noted:
            return self._with_floats(used, noted, ends)
        return Texts(self._out.data[:used], ends)

    def _record(
        self,
        batch: ChangeBatch,
        place: Place,
        shown: npt.NDArray[np.bool_] | None,
        gtids: pa.LargeStringArray | None,
    ) -> tuple[npt.NDArray[np.int64], list[object]]:
        """The kernel's view of the batch, and what has to live as long."""
        assert batch.event is not None  # noqa: S101  (decoders of VARIANT give them)
        assert batch.events is not None  # noqa: S101
        record = np.zeros(k.BATCH_WORDS, np.int64)
        slots = np.ascontiguousarray(batch.events["slot"][batch.event])
        programs = self._addresses(batch, slots)
        keep: list[object] = [slots, programs]
        record[k.BATCH_OP // 8] = address(batch.op)
        record[k.BATCH_SLOT // 8] = address(slots)
        record[k.BATCH_GROUP // 8] = address(batch.group)
        record[k.BATCH_ORDINAL // 8] = address(batch.ordinal)
        record[k.BATCH_PROGRAMS // 8] = address(programs)
        record[k.BATCH_GROUPS // 8] = address(batch.groups.records)
        starts = np.ascontiguousarray(batch.groups.start)
        record[k.BATCH_STARTS // 8] = address(starts)
        keep.append(starts)
        record[k.BATCH_ORIGIN // 8] = place.offset
        for side, field in ((batch.before, k.BATCH_BEFORE), (batch.after, k.BATCH_AFTER)):
            _, offsets, data = side[0].field("value").buffers()
            record[field // 8], record[field // 8 + 1] = offsets.address, data.address if data else 0
        if batch.history is not None:
            known = batch.history.is_valid().to_numpy(zero_copy_only=False)
            flags = np.where(known, batch.history.fill_null(False).to_numpy(zero_copy_only=False), -1).astype(np.int8)
            record[k.BATCH_HISTORY // 8] = address(flags)
            keep.append(flags)
        if shown is not None:
            mask = shown.astype(np.int8)
            record[k.BATCH_SHOWN // 8] = address(mask)
            keep.append(mask)
        if gtids is not None:
            record[k.BATCH_GTIDS // 8], record[k.BATCH_GTIDS_DATA // 8] = (b.address for b in gtids.buffers()[1:])
        if place.file != self._file or k.BATCH_POSITION_PIECE not in self._pieces:
            self._file = place.file
            self._pieces[k.BATCH_POSITION_PIECE] = piece(f'","file":{as_json(place.file)},"position":')
        for at, data in self._pieces.items():
            write_piece(record, at, data)
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
        """Drop the programs: the tables they belong to are gone."""
        self._programs.clear()

    def _grow(self, state: npt.NDArray[np.int64]) -> None:
        need, notes = int(state[k.STATE_NEED // 8]), int(state[k.STATE_NEED_NOTES // 8])
        if need > len(self._out):
            larger = np.empty(max(need, 2 * len(self._out)), np.uint8)
            used = int(state[k.STATE_USED // 8])
            larger[:used] = self._out[:used]
            self._out = larger
        if notes > len(self._notes):
            more = np.empty((max(notes, 2 * len(self._notes)), self._notes.shape[1]), np.int64)
            more[: len(self._notes)] = self._notes
            self._notes = more

    def _with_floats(self, used: int, noted: int, ends: npt.NDArray[np.int64]) -> Texts:
        """The text with the floats in their places, each in the fewest digits that give the same float again."""
        notes = self._notes[:noted]
        kinds, bits = notes[:, kv.NOTE_KIND // 8], notes[:, kv.NOTE_BITS // 8]
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
                f"A row image of {table} holds no column that an SQL statement could find or set the row by.",
                hint="Use --json, or set binlog_row_image=FULL on the primary.",
            )
        return ProtocolError(f"a value of {table} is of no known kind")


def _shortest(numbers: npt.NDArray[np.float64] | npt.NDArray[np.float32], *, json: bool) -> pa.StringArray:
    texts = pa.array(numbers).cast(pa.string())
    negative_zero = (numbers == 0) & np.signbit(numbers)
    if negative_zero.any():  # "-0" reads as the integer 0, which has no sign
        texts = pc.if_else(pa.array(negative_zero), "-0.0", texts)
    finite = np.isfinite(numbers)
    if json and not finite.all():  # no server stores them, but damaged bytes may
        texts = pa.array(
            [t if f else f'"{t}"' for t, f in zip(texts.to_pylist(), finite.tolist(), strict=True)], pa.string()
        )
    return texts


def _text_of(texts: pa.StringArray) -> tuple[int, int, int]:
    """(address of the offsets, address of the characters, bytes of them); zeros where there is nothing to read."""
    if not len(texts):
        return 0, 0, 0
    _, ends, data = texts.buffers()
    return ends.address, data.address, data.size
