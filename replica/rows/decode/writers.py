"""Output side of a decode kernel: the buffers of a batch, the call of the kernel, and the batch made from the result.

`TypedWriter` writes columns of their own types, `VariantWriter` writes VARIANT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replica.native.arrays import address
from replica.rows.decode import records as d
from replica.rows.decode.arena import ColumnSet, first_capacities
from replica.rows.decode.batch import ChangeBatch, Groups
from replica.rows.decode.records import RowColumns
from replica.rows.decode.texts import bad_text, damaged_row, repaired
from replica.rows.types import plan_record as pr
from replica.rows.types.arrow_arrays import array_of, array_of_values, validity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.decode.images.absent import AbsentColumns
    from replica.rows.decode.open_rows.open_rows import OpenRows
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from replica.rows.types.types import OutputColumn

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
        """Call the kernel. Both kernels take the same arguments except for the last."""
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
            limits: Rows and bytes of a batch at most.
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
