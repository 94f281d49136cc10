"""Output side of a decode kernel: the buffers of a batch, the call of the kernel, and the batch made from the result.

`TypedWriter` writes columns of their own types, `VariantWriter` writes VARIANT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.rows.decode import records as d
from replica.rows.decode.batch import ChangeBatch, Groups
from replica.rows.decode.records import RowColumns, SideRecord, TailRecord
from replica.rows.types import kinds as pr
from replica.rows.types.arrow_arrays import array_of, array_of_values, validity
from replica.rows.types.kernels.kernel_charsets import ALL_VALID, first_damaged, repair, repaired_size
from replica.rows.types.types import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.decode.images import AbsentColumns
    from replica.rows.decode.open_rows import OpenRows
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from replica.rows.types.types import OutputColumn
# One `ColumnSet` holds the columns of one side of the output (before, after, or the flat row). Kernels write through
# the addresses in `values`, `valid` and `tails`; `arrays()` wraps the result without a copy. Fresh pages cost as much
# time as decoding, so a set can be reset and filled again. The arrays of the previous batch change when their set is
# refilled.


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
    """Return the bytes of one value in Arrow's buffer; 0 for strings, bytes, vectors and geometries.

    Kernels write values of these types as bytes of any length.
    """
    return 0 if kind in (pa.string(), pa.binary()) or kind.id in _ASSEMBLED else kind.bit_width // 8


class ColumnSet:
    """Buffers for `rows` rows of columns of these Arrow types.

    All buffers are one allocation, so that large pages save address lookups.

    Args:
        kinds: The Arrow types.
        rows: Maximal number of rows.
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


# `damaged_row` finds invalid text, `repaired` replaces it with U+FFFD, and `bad_text` makes the error. A column of
# ASCII costs one pass over its data; other columns are checked value by value.


def damaged_row(columns: ColumnSet, index: int, rows: int) -> int | None:
    """Find the first row of a string column with invalid UTF-8; None if all are valid."""
    offsets, data = columns.text(index)
    row = int(first_damaged(offsets, rows, data))
    return None if row == ALL_VALID else row


def repaired(array: pa.StringArray) -> pa.StringArray:
    """Return the same values, with U+FFFD for invalid bytes.

    Raises:
        ProtocolError: The repaired values exceed an Arrow column of 2 GiB.
    """
    valid, offsets, data = array.buffers()
    size = int(repaired_size(offsets.address, len(array), data.address))
    if size > MAX_DATA:
        raise ProtocolError(
            f"damaged text takes {size} bytes in one column of a batch, more than an Arrow column of 2 GiB holds",
            hint="Leave the column out, or read fewer rows in a batch.",
        )
    new_offsets, new_data = np.empty(len(array) + 1, np.int32), np.empty(size + SLACK, np.uint8)
    repair(offsets.address, len(array), data.address, address(new_offsets), address(new_data))
    return pa.StringArray.from_buffers(len(array), pa.py_buffer(new_offsets), pa.py_buffer(new_data), valid)


def bad_text(batch: ChangeBatch, row: int, column: str) -> ProtocolError:
    """Return the error for one value of a batch; its offset is that of the rows event."""
    table = ".".join(batch.tables[int(batch.table[row])])
    offset = None
    if batch.event is not None and batch.events is not None:
        offset = int(batch.events["start"][int(batch.event[row])])
    return no_text(f"column {column} of {table}", offset)


def no_text(where: str, offset: int | None) -> ProtocolError:
    """Return the error of `invalid_text='error'`."""
    return ProtocolError(
        f"{where} holds bytes that are not text in its character set",
        offset=offset,
        hint="Set invalidText to 'replace' to replace such bytes with U+FFFD.",
    )


# Spark's reader recognises a VARIANT by the field metadata of `metadata`.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


class RowMeta:
    """The batch's own columns: one array each, and the addresses that the kernels take."""

    def __init__(self, rows: int) -> None:
        self.op = np.empty(rows, np.int8)
        self.table = np.empty(rows, np.int32)
        self.group = np.empty(rows, np.int32)
        self.ordinal = np.empty(rows, np.int64)
        self.last = np.empty(rows, np.bool_)
        self.event = np.empty(rows, np.int32)
        self.history = np.empty(rows, np.int8)
        self.addresses = np.array(tuple(address(getattr(self, field)) for field in RowColumns.FIELDS), RowColumns.dtype)

    def closed(self, rows: int, slots: SlotTable, *, flat: bool) -> pa.BooleanArray | None:
        """Return which rows are history rows; None if no table is versioned."""
        if not slots.versioned:
            return None
        history = self.history[:rows]
        if flat:  # an after image without row_end inherits it from the before image, one row before
            silent = np.flatnonzero((history == pr.HISTORY_UNKNOWN) & (self.op[:rows] == d.FLAT_AFTER))
            history[silent] = history[silent - 1]
        return array_of(history == pr.HISTORY_CLOSED, history == pr.HISTORY_UNKNOWN)

    def batch(self, rows: int, found: Scan, slots: SlotTable, groups: Groups, *, want_sql: bool) -> ChangeBatch:
        return ChangeBatch(
            rows=rows,
            op=self.op[:rows],
            table=self.table[:rows],
            group=self.group[:rows],
            ordinal=self.ordinal[:rows],
            last=self.last[:rows],
            tables=slots.names,
            groups=groups,
            sql=_statements(found, self.event[:rows]) if want_sql else None,
            event=self.event[:rows],
            events=found.events,
            slots=slots,
        )


class Writer:
    """Two sets of columns, before and after, or one set for both (flat), with the row columns."""

    def __init__(self, before: ColumnSet, after: ColumnSet, limits: tuple[int, int], *, want_sql: bool) -> None:
        self.before = before
        self.after = after
        self._limits = limits  # rows and bytes of a batch at most
        self._want_sql = want_sql
        self._meta = RowMeta(limits[0])

    def reset(self) -> None:
        self.before.reset()
        if self.after is not self.before:
            self.after.reset()

    def want_room(self, tail: int, need: int) -> None:
        if not self.before.want_room(tail, need):
            self.after.want_room(tail, need)

    def _call(
        self,
        kernel: Callable[..., int],
        found: Scan,
        work: npt.NDArray[np.uint32],
        slots: SlotTable,
        run: Records,
        last: int,
    ) -> int:
        """Call the kernel. `last` is the last argument, the only one that differs between the two kernels."""
        if slots.versioned:
            self._meta.history.fill(pr.HISTORY_UNKNOWN)
        return kernel(
            address(found.data),
            address(found.events),
            address(work),
            len(work),
            address(slots.records),
            address(run),
            address(self._meta.addresses),
            address(self.before.side),
            address(self.after.side),
            *self._limits,
            last,
        )

    def _tell_absent(self, batch: ChangeBatch, absent: AbsentColumns, *, flat: bool) -> None:
        events = self._meta.event[: batch.rows]
        if not absent.any:
            return
        if flat:
            batch.absent = absent.flat(events, batch.op == d.FLAT_AFTER)
        else:
            batch.absent_before = absent.before(events, batch.before_valid)
            batch.absent_after = absent.after(events, batch.after_valid)


class TypedWriter(Writer):
    """Writer of the output columns: twice in the envelope shape, once in the flat shape."""

    def __init__(
        self,
        output: Sequence[OutputColumn],
        limits: tuple[int, int],
        *,
        flat: bool,
        want_sql: bool,
        strict_text: bool = False,
        like: TypedWriter | None = None,
    ) -> None:
        """Make the buffers.

        Args:
            output: The output columns.
            limits: Maximal number of rows and of bytes of a batch.
            flat: True for the flat shape.
            want_sql: True if batches carry the text of their statement.
            strict_text: True if invalid text is an error.
            like: A writer whose grown capacities the new one takes over.
        """
        kinds = [column.arrow for column in output]
        first = first_capacities(kinds, limits[1])
        after = ColumnSet(kinds, limits[0], like.after.capacities if like else first)
        before = after if flat else ColumnSet(kinds, limits[0], like.before.capacities if like else first)
        super().__init__(before, after, limits, want_sql=want_sql)
        self._output = output
        self._flat = flat
        self._strict = strict_text

    def fresh(self) -> TypedWriter:
        return TypedWriter(
            self._output, self._limits, flat=self._flat, want_sql=self._want_sql, strict_text=self._strict, like=self
        )

    def run(self, found: Scan, work: npt.NDArray[np.uint32], slots: SlotTable, run: Records) -> int:
        from replica.rows.decode.kernels.kernel_typed import decode_typed  # noqa: PLC0415  (long to compile)

        slots.bind(self.before, self.after)
        return self._call(decode_typed, found, work, slots, run, int(self._flat))

    def batch(
        self, rows: int, found: Scan, slots: SlotTable, groups: Groups, open_rows: OpenRows | None = None
    ) -> ChangeBatch:
        batch = self._meta.batch(rows, found, slots, groups, want_sql=self._want_sql)
        batch.history = self._meta.closed(rows, slots, flat=self._flat)
        if open_rows is not None and not self._flat:
            open_rows.settle(batch, flat=False)
        if self._flat:
            batch.columns = self._arrays(self.after, rows, batch)
        else:
            batch.before = self._arrays(self.before, rows, batch)
            batch.after = self._arrays(self.after, rows, batch)
        self._tell_absent(batch, slots.absent(found), flat=self._flat)
        if open_rows is not None and self._flat:  # last: the lines above need the `op` of an update's images
            open_rows.settle(batch, flat=True)
        return batch

    def _arrays(self, columns: ColumnSet, rows: int, batch: ChangeBatch) -> list[pa.Array]:
        arrays = columns.arrays(rows)
        for index in batch.slots.text if batch.slots else ():
            damaged = damaged_row(columns, index, rows)
            if damaged is not None:
                if self._strict:
                    raise bad_text(batch, damaged, self._output[index].name)
                arrays[index] = repaired(arrays[index])
        return arrays


class VariantWriter(Writer):
    """Writer of two binary columns per side: the values, and the dictionary, repeated for each row."""

    def __init__(self, limits: tuple[int, int], *, want_sql: bool, like: VariantWriter | None = None) -> None:
        kinds = [pa.binary(), pa.binary()]
        first = first_capacities(kinds, limits[1] * 2)
        after = ColumnSet(kinds, limits[0], like.after.capacities if like else first, nullable=False)
        before = ColumnSet(kinds, limits[0], like.before.capacities if like else first, nullable=False)
        super().__init__(before, after, limits, want_sql=want_sql)
        self._scratch = np.empty(0, np.int64)

    def fresh(self) -> VariantWriter:
        return VariantWriter(self._limits, want_sql=self._want_sql, like=self)

    def run(self, found: Scan, work: npt.NDArray[np.uint32], slots: SlotTable, run: Records) -> int:
        if len(self._scratch) < slots.max_columns:
            self._scratch = np.empty(slots.max_columns, np.int64)
        from replica.rows.decode.kernels.kernel_variant import decode_variant  # noqa: PLC0415  (as above)

        return self._call(decode_variant, found, work, slots, run, address(self._scratch))

    def batch(
        self, rows: int, found: Scan, slots: SlotTable, groups: Groups, open_rows: OpenRows | None = None
    ) -> ChangeBatch:
        batch = self._meta.batch(rows, found, slots, groups, want_sql=self._want_sql)
        if open_rows is not None:
            open_rows.settle(batch, flat=False)
        batch.before = [_variant(self.before.arrays(rows), batch.before_valid)]
        batch.after = [_variant(self.after.arrays(rows), batch.after_valid)]
        batch.history = self._meta.closed(rows, slots, flat=False)
        self._tell_absent(batch, slots.absent(found), flat=False)
        return batch


def _variant(columns: list[pa.Array], valid: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.StructArray.from_buffers(VARIANT, len(valid), [validity(valid)], children=columns)


def _statements(found: Scan, events: npt.NDArray[np.int32]) -> pa.Array:
    """Return the text of each row's statement, NULL if the server logged none."""
    data = found.data.data
    starts, ends = (found.events[f][events].tolist() for f in ("sql", "sql_end"))
    texts: dict[int, str] = {}
    rows: list[Any] = []
    for start, end in zip(starts, ends, strict=True):
        if start and start not in texts:
            texts[start] = bytes(data[start:end]).decode("utf-8", "replace")
        rows.append(texts.get(start))
    return array_of_values(rows, pa.string())


DAMAGED: Final = "The bytes are damaged; verify the relay log's checksums."
UNLIKE: Final = (
    "Either the table was changed without the binlog (sql_log_bin=0), or the bytes are damaged: verify the relay log's "
    "checksums. With binlog_row_metadata=FULL on the primary, the binlog contains the column definitions."
)
OURS: Final = "The bytes may be correct: report this with the column's declaration."


def image_fault(status: int, slots: SlotTable, slot: int, *, column: int = -1, offset: int) -> ProtocolError:
    """Make the error of a fault code.

    Args:
        status: The fault code (rows/decode/records.py).
        slots: The tables of the range.
        slot: The slot of the table.
        column: The number of the column, -1 if the fault is not in a single column.
        offset: The offset of the byte in the range.
    """
    where = slots.name(slot)
    if column >= 0:
        where = f"column {slots.column_name(slot, column)} of {where}"
    if status == d.BAD_DATE:
        return ProtocolError(
            f"{where} holds a date that does not exist",
            offset=offset,
            hint="Set invalidDates to 'null' or 'text' to accept such dates.",
        )
    if status == d.BAD_TEXT:
        return no_text(where, offset)
    text = {
        d.SHORT_IMAGE: "ends beyond its event",
        d.BAD_WIDTH: "has a different number of columns in its rows than in its table map",
        d.NO_COLUMNS: "has row images without any column",
        d.BAD_VALUE: "holds bytes that are not a value of its type",
        d.UNKNOWN_KIND: "has a type that the decoder does not support",
    }[status]
    subject = f"the row image of {where}" if status == d.SHORT_IMAGE else where
    hint = {d.UNKNOWN_KIND: OURS, d.BAD_VALUE: UNLIKE}.get(status, DAMAGED)
    return ProtocolError(f"{subject} {text}", offset=offset, hint=hint)


def run_fault(status: int, run: Records, found: Scan, slots: SlotTable) -> ProtocolError:
    """Make the error from the RunState that a kernel left."""
    event = found.events[int(run["event"])]
    offset = int(run["fault"])
    if not 0 <= offset < len(found.data):  # in rewritten images
        offset = int(event["start"])
    slot, column = int(event["slot"]), int(run["column"])
    return image_fault(status, slots, slot, column=column, offset=found.origin(offset))
