"""A range of relay log bytes -> batches of row changes in Arrow, in stream order.

One scan finds groups, rows events and distinct table maps; the resolver says which tables are wanted; one kernel then
decodes all wanted rows of all tables into the buffers of a batch. Rows of other tables that stand before a wanted row
of the same transaction are stepped over, because ordinals count every row; groups without wanted rows cost the scan
alone.

Shapes: `envelope` (before and after columns), `flat` (one row an image), `variant` (before and after as Spark VARIANT).

Refused: what the scan refuses, images that do not fit their table map, values the server never writes, and wanted
rows of an XA transaction that is only prepared: they are not committed there, and may never be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from replica.errors import ConfigError, ProtocolError, UnsupportedEventError
from replica.rows import records as r
from replica.rows.batch import ChangeBatch, Groups
from replica.rows.kernel_walk import count_images
from replica.rows.scan import Bytes, Scan, address, scan
from replica.rows.tables import SlotTable, TableCache, TableResolver, TableTarget
from replica.rows.types import OutputColumn, ValuePolicy
from replica.rows.writers import TypedWriter, VariantWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = ["DecodeOptions", "RangeDecoder", "TableResolver", "TableTarget", "count_rows"]

Shape = Literal["envelope", "flat", "variant"]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """`batch_rows` and `batch_bytes` (of row images) end a batch, whichever comes first; one row is never split.

    `reuse_buffers`: each batch overwrites the one before, for readers that are done with a batch when they ask for the
    next. `want_sql`: batches carry the statement text that the server logged (ANNOTATE_ROWS).
    """

    shape: Shape = "envelope"
    invalid_dates: Literal["null", "error", "text"] = "null"
    batch_rows: int = 16_384
    batch_bytes: int = 2 << 20
    want_sql: bool = False
    reuse_buffers: bool = False

    def __post_init__(self) -> None:
        if self.batch_rows < 2 or self.batch_bytes < 1:
            raise ConfigError("a batch needs room for two rows: an update in the flat shape")

    @property
    def policy(self) -> ValuePolicy:
        return ValuePolicy(self.invalid_dates)


class RangeDecoder:
    """Decodes ranges, one after the other; what it knows of tables is kept from one to the next."""

    def __init__(
        self,
        resolver: TableResolver,
        options: DecodeOptions,
        output: Sequence[OutputColumn] | None = None,
    ) -> None:
        """`output`: the columns of typed shapes, which all wanted tables are fitted to. None: VARIANT only."""
        if (output is None) != (options.shape == "variant"):
            raise ConfigError("typed shapes need output columns, and only they")
        columns = None if output is None else tuple(output)
        limits = (options.batch_rows, options.batch_bytes)
        self._options = options
        self._tables = TableCache(resolver, columns, options.policy)
        self._given_out = False  # whether the writer's buffers are in a batch that somebody may keep
        self._writer: TypedWriter | VariantWriter = (
            VariantWriter(limits, want_sql=options.want_sql)
            if columns is None
            else TypedWriter(columns, limits, flat=options.shape == "flat", want_sql=options.want_sql)
        )

    def decode(self, data: Bytes, *, checksum: bool) -> Iterator[ChangeBatch]:
        """All wanted row changes of a range of whole event groups. Offsets in errors count from its start."""
        found = scan(data, checksum=checksum)
        slots = self._tables.slots(found)
        work = _worklist(found, slots.wanted)
        if not len(work):
            return
        _refuse_prepared(found, slots)
        slots.load(found, work)
        run = np.zeros(r.RUN_WORDS, np.int64)
        run[r.RUN_GROUP // r.WORD] = -1
        groups = Groups(found.groups)
        status = r.FULL
        while status != r.DONE:
            if self._given_out and not self._options.reuse_buffers:
                self._writer = self._writer.fresh()
            writer, self._given_out = self._writer, False
            writer.reset()
            status = writer.run(found, work, slots, run)
            rows = int(run[r.RUN_ROWS // r.WORD])
            if status > r.ROOM:
                raise _fault(status, run, found, slots)
            if status == r.ROOM:
                writer.want_room(int(run[r.RUN_COLUMN // r.WORD]), int(run[r.RUN_NEED // r.WORD]))
            if rows:
                self._given_out = True
                yield writer.batch(rows, found, slots, groups)


def count_rows(data: Bytes, resolver: TableResolver, *, checksum: bool) -> tuple[Groups, npt.NDArray[np.int64]]:
    """The range's groups, and how many row changes of wanted tables each holds (an UPDATE of one row counts once)."""
    found = scan(data, checksum=checksum)
    slots = TableCache(resolver, None, ValuePolicy()).slots(found)
    counts = np.zeros(len(found.groups), np.int64)
    wanted = np.flatnonzero(slots.wanted[r.column(found.events, r.EVENT_SLOT)]).astype(np.uint32)
    if len(wanted):
        slots.load(found, wanted, walk_only=True)
        run = np.zeros(r.RUN_WORDS, np.int64)
        status = count_images(
            address(found.data),
            address(found.events),
            address(wanted),
            len(wanted),
            address(slots.records),
            address(counts),
            address(run),
        )
        if status != r.DONE:
            raise _fault(status, run, found, slots)
    return Groups(found.groups), counts


def _worklist(found: Scan, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Numbers of the rows events to go through: per group, all up to its last wanted one."""
    chosen = wanted[r.column(found.events, r.EVENT_SLOT)]
    if chosen.all():
        return np.arange(len(chosen), dtype=np.uint32)
    numbers = np.flatnonzero(chosen)
    group = r.column(found.events, r.EVENT_GROUP)
    last = np.full(len(found.groups), -1, np.int64)
    last[group[numbers]] = numbers  # assignment in order: the last one stays
    return np.flatnonzero(np.arange(len(chosen)) <= last[group]).astype(np.uint32)


def _refuse_prepared(found: Scan, slots: SlotTable) -> None:
    prepared = r.column(found.groups, r.GROUP_ENDING) == r.ENDS_XA_PREPARE
    if not prepared.any():
        return
    for number in np.flatnonzero(prepared[r.column(found.events, r.EVENT_GROUP)]):
        slot = int(r.column(found.events, r.EVENT_SLOT)[number])
        if slots.wanted[slot]:
            raise UnsupportedEventError(
                f"rows of {slots.name(slot)} in an XA transaction that is only prepared",
                offset=int(r.column(found.events, r.EVENT_START)[number]),
                hint="XA transactions cannot be read yet: leave the table out, or write to it without XA.",
            )


def _fault(status: int, run: npt.NDArray[np.int64], found: Scan, slots: SlotTable) -> ProtocolError:
    event = found.events[int(run[r.RUN_EVENT // r.WORD])]
    slot = int(event[r.EVENT_SLOT // r.WORD])
    where = slots.name(slot)
    column = int(run[r.RUN_COLUMN // r.WORD])
    if column >= 0:
        where = f"column {slots.column_name(slot, column)} of {where}"
    if status == r.BAD_DATE:
        return ProtocolError(
            f"{where} holds a date that no calendar has",
            offset=int(run[r.RUN_FAULT // r.WORD]),
            hint="Set invalidDates to 'null' or 'text' to let such dates pass.",
        )
    text = {
        r.SHORT_IMAGE: "ends beyond its event",
        r.BAD_WIDTH: "has another number of columns in its rows than in its table map",
        r.NO_COLUMNS: "has row images without any column",
        r.BAD_VALUE: "holds bytes that are no value of its type",
    }[status]
    return ProtocolError(
        f"the row image of {where} {text}" if status == r.SHORT_IMAGE else f"{where} {text}",
        offset=int(run[r.RUN_FAULT // r.WORD]),
        hint="The bytes are damaged; verify the relay log's checksums.",
    )
