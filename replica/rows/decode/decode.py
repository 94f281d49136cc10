"""Decoder: a range of relay log bytes to Arrow batches of row changes, in stream order.

`RangeDecoder.decode` scans the range, selects tables with the resolver, and runs one kernel that decodes the selected
rows of all tables. Ordinals count every row of a transaction, so the kernel steps over unselected rows that precede a
selected row. Groups without selected rows cost only the scan. images.py rewrites images that kernels cannot read.

`worklist` lists the rows events for the kernel, and how many bytes of each event's images to read. In each group the
list ends with the last selected row, so that the kernel can mark the transaction's last row. Unchanged updates of a
table that skips them are not selected; `worklist` finds such updates by comparing their images.

Shapes: `envelope` (before and after columns), `flat` (one row per image), `variant` (before and after as VARIANT). Rows
of an XA transaction are delivered at its XA COMMIT (xa.py). Errors: everything that the scan refuses, images that do
not fit their table map, invalid values, and an XA COMMIT without its rows. Rows before the fault are delivered first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from replica.errors import ConfigError, PrerequisiteError, ProtocolError, ReplicaError
from replica.rows.decode import records as d
from replica.rows.decode.batch import ChangeBatch, Groups
from replica.rows.decode.frontier import WHOLE, OpenEnds
from replica.rows.decode.images import Arena, PlainImages, run_over_images
from replica.rows.decode.kernels.kernel_images import count_images, find_changes
from replica.rows.decode.open_rows import OpenRows
from replica.rows.decode.slots import SlotTable, TableCache
from replica.rows.decode.writers import TypedWriter, VariantWriter, run_fault
from replica.rows.scan import records as r
from replica.rows.scan.scan import Bytes, EventBlock, RecordMemory, Scan, event_blocks, scan, scan_until
from replica.rows.scan.xa import CarriedGroup, XaGroup, deliver
from replica.rows.tables.layout import TableResolver, TableTarget
from replica.rows.types.types import OutputColumn, ValuePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from replica.errors import SchemaError
    from replica.rows.decode.batch import TableName
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.rows.scan.windows import Passed

ALL: Final = (1 << 63) - 1
"""Length of images that are read to their end."""


class Worklist(NamedTuple):
    """A worklist.

    Attributes:
        events: uint32 numbers of rows events.
        lengths: int64 per event of the range, the bytes of images to read; None for all.
    """

    events: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64] | None = None


def worklist(
    found: Scan, slots: SlotTable, groups: npt.NDArray[np.bool_] | None = None, open_rows: OpenRows | None = None
) -> Worklist:
    """List the rows events to process.

    Args:
        found: The scan of the range.
        slots: The tables of its slots.
        groups: Per group of the range, True if its rows are selected; None if all are.
        open_rows: Decides which rows of partly delivered tables are selected.

    Raises:
        PrerequisiteError: Images lack columns that `open_rows` requires.
        ProtocolError: Images that must be compared do not fit their table map.
    """
    selected = slots.selects(found.events)
    group = found.events["group"]
    if groups is not None:
        selected &= groups[group]
    if slots.filtered:
        delivering = np.zeros(len(found.groups), np.bool_)
        delivering[group[selected & slots.delivers(found.events)]] = True
        selected &= delivering[group]
    if slots.skips or (open_rows is not None and open_rows.opened.any()):
        return _until_last_change(found, slots, selected, open_rows)
    return Worklist(_counted(found, selected))


def selecting(found: Scan, slots: SlotTable) -> npt.NDArray[np.bool_]:
    """Mark the rows events with at least one selected row (a mask over the events of the range).

    Unchanged updates do not count, see the module's description.
    """
    selected = slots.selects(found.events)
    updates = np.flatnonzero(slots.compares(found.events)).astype(np.uint32)
    if len(updates):
        selected[updates] &= _changed(found, slots, updates)[updates] > 0
    return selected


def _until_last_change(
    found: Scan, slots: SlotTable, selected: npt.NDArray[np.bool_], open_rows: OpenRows | None
) -> Worklist:
    """Return the worklist of these events, without unchanged updates and rows that are not delivered."""
    compared = slots.compares(found.events) & selected
    opened = np.zeros_like(selected) if open_rows is None else selected & open_rows.opened[found.events["slot"]]
    if not (compared | opened).any():
        return Worklist(_counted(found, selected))
    updates = np.flatnonzero(compared & ~opened).astype(np.uint32)
    lengths = _changed(found, slots, updates)
    if open_rows is not None and opened.any():
        open_rows.find(_counted(found, opened), lengths)
    measured = compared | opened
    selected[measured] &= lengths[measured] > 0
    events = _counted(found, selected)
    group = found.events["group"][events]
    inside = np.append(group[1:] == group[:-1], False) if len(events) else np.zeros(0, np.bool_)
    lengths[events[inside]] = ALL  # later rows need these ordinals: only the last event of a group is cut short
    return Worklist(events, lengths)


def _counted(found: Scan, selected: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """List the events of each group up to its last selected event."""
    if selected.all():
        return np.arange(len(selected), dtype=np.uint32)
    numbers = np.flatnonzero(selected)
    group = found.events["group"]
    last = np.full(len(found.groups), -1, np.int64)
    last[group[numbers]] = numbers  # assigned in order: the last one remains
    return np.flatnonzero(np.arange(len(selected)) <= last[group]).astype(np.uint32)


def _changed(found: Scan, slots: SlotTable, updates: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return, per event of the range, the bytes of images up to its last changed row; 0 if no row changed."""
    lengths = np.full(len(found.events), ALL, np.int64)
    run_over_images(find_changes, found, slots, updates, lengths, walk_only=False)
    return lengths


__all__ = ["DecodeOptions", "RangeDecoder", "TableResolver", "TableTarget", "count_rows"]

Shape = Literal["envelope", "flat", "variant"]
GroupChoice: TypeAlias = "Callable[[Groups], npt.NDArray[np.bool_]]"
"""Function that marks the selected groups of a range."""
Walked: TypeAlias = "Callable[[Scan, SlotTable], None]"
"""Function that receives the rows events of a range, with the tables of their slots."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options of the decoder.

    Attributes:
        shape: The shape of the output: `envelope`, `flat` or `variant`.
        invalid_dates: See `ValuePolicy`.
        invalid_text: See `ValuePolicy`.
        geometry: See `ValuePolicy`.
        stored_digits: See `ValuePolicy`.
        batch_rows: Maximal number of rows of a batch.
        batch_bytes: Bytes of row images after which a batch ends. A row is never split.
        want_sql: True if batches carry the statement's text as the server logged it (ANNOTATE_ROWS).
        reuse_buffers: True if each batch overwrites the previous one, and each range overwrites its groups. The reader
            must have finished with them when it asks for the next.
        lenient: True if the error of a single table does not stop the decoder. `CompiledTable.fault` and
            `SlotTable.faults` report the error. Only for output without columns.
    """

    shape: Shape = "envelope"
    invalid_dates: Literal["null", "error", "text"] = "null"
    invalid_text: Literal["replace", "error"] = "replace"
    geometry: Literal["binary", "spark"] = "binary"
    stored_digits: bool = False
    batch_rows: int = 16_384
    batch_bytes: int = 2 << 20
    want_sql: bool = False
    reuse_buffers: bool = False
    lenient: bool = False

    def __post_init__(self) -> None:
        if self.batch_rows < 2 or self.batch_bytes < 1:
            raise ConfigError("a batch needs room for two rows: an update in the flat shape")

    @property
    def policy(self) -> ValuePolicy:
        return ValuePolicy(self.invalid_dates, self.invalid_text, self.geometry, self.stored_digits)


class UnreadableGroup(NamedTuple):
    """Number of a group in its range, and the error of one of its row images."""

    number: int
    error: ProtocolError


class RangeDecoder:
    """Decoder of consecutive ranges, which keeps its compiled tables between them."""

    def __init__(
        self,
        resolver: TableResolver,
        options: DecodeOptions,
        output: Sequence[OutputColumn] | None = None,
    ) -> None:
        """Take the options.

        Args:
            resolver: Selects the tables.
            options: The options.
            output: The columns of the typed shapes, which all selected tables must fit. None for the shape `variant`
                only.
        """
        if (output is None) != (options.shape == "variant"):
            raise ConfigError("typed shapes need output columns, and the shape `variant` takes none")
        columns = None if output is None else tuple(output)
        limits = (options.batch_rows, options.batch_bytes)
        self._options = options
        self._tables = TableCache(resolver, columns, options.policy, lenient=options.lenient)
        self._arena = Arena()
        self._records = RecordMemory() if options.reuse_buffers else None
        self._unreadable: int | None = None  # the group of the unreadable image, after an error
        self._given_out = False  # whether a delivered batch refers to the writer's buffers
        self._writer: TypedWriter | VariantWriter = (
            VariantWriter(limits, want_sql=options.want_sql)
            if columns is None
            else TypedWriter(
                columns,
                limits,
                flat=options.shape == "flat",
                want_sql=options.want_sql,
                strict_text=options.invalid_text == "error",
            )
        )

    def decode(
        self,
        data: Bytes,
        *,
        checksum: bool,
        carried: Sequence[CarriedGroup] = (),
        unprepared: list[XaGroup] | None = None,
        only: GroupChoice | None = None,
        ends: OpenEnds = WHOLE,
        unreadable: list[UnreadableGroup] | None = None,
        delivered: DeliveredKeys | None = None,
        walked: Walked | None = None,
    ) -> Iterator[ChangeBatch]:
        """Yield the selected row changes of a range of whole event groups. Offsets in errors count from its start.

        At an event that cannot be skipped (INCIDENT, an unknown event), the decoder delivers the groups before it and
        raises. At an unreadable image, it delivers the rows before the image and raises.

        Args:
            data: The bytes of the range.
            checksum: True if events carry a CRC32.
            carried: XA groups that were prepared before the range and commit in it, oldest first. Offsets in an error
                of such a group count from the group's own start; a note of the error says so.
            unprepared: Receives the XA COMMITs whose rows are missing in `carried` and in the range. Without it, the
                first one is a DataLossError.
            only: Selects the groups to decode.
            ends: The open ends of a range that begins or ends inside a transaction.
            unreadable: Receives the groups with unreadable images. Then decoding continues with the next group, and the
                caller must discard the rows of the faulty group.
            delivered: The delivered part of tables whose snapshot is running. None: all tables are delivered
                completely.
            walked: Called first with all rows events, including those of tables that are not selected or not delivered.
        """
        found, stop = scan_until(data, checksum=checksum, memory=self._records)
        groups = Groups(found.groups, found.expansion)
        wanted = None if only is None else only(groups)
        for part in [found] if ends.committed else deliver(found, carried, unprepared):
            left: npt.NDArray[np.bool_] | None = wanted
            while True:
                try:
                    for batch in self._decode(part, groups, left, ends.rows_before, delivered, walked):
                        if ends.rows_follow:
                            batch.last[batch.group == len(groups) - 1] = False
                        yield batch
                except ReplicaError as error:
                    if part.data is not found.data:
                        note = "in an XA group that was prepared before the range; offsets count from its start"
                        error.add_note(note)
                    if unreadable is None or not isinstance(error, ProtocolError) or self._unreadable is None:
                        raise
                    unreadable.append(UnreadableGroup(self._unreadable, error))
                    later = np.arange(len(groups)) > self._unreadable
                    left = later if left is None else left & later
                else:
                    break
        if stop is not None:
            raise stop

    def _slots(self, found: Scan, walked: Walked | None) -> SlotTable:
        slots = self._tables.slots(found)
        if walked is not None:
            walked(found, slots)
        return slots

    def _worklist(
        self,
        found: Scan,
        slots: SlotTable,
        wanted: npt.NDArray[np.bool_] | None,
        rows_before: int,
        delivered: DeliveredKeys | None,
    ) -> tuple[OpenRows | None, Worklist]:
        if delivered is None:
            return None, worklist(found, slots, wanted)
        while True:
            unfit: dict[int, SchemaError] | None = {} if self._options.lenient else None
            open_rows = OpenRows(found, slots, delivered, rows_before, unfit)
            if unfit:
                slots.leave_out_faulty(unfit)
                continue
            try:
                return open_rows, worklist(found, slots, wanted, open_rows)
            except PrerequisiteError as error:
                if not self._options.lenient or open_rows.refused is None:
                    raise
                slots.leave_out_faulty({open_rows.refused: error})

    def _decode(
        self,
        found: Scan,
        groups: Groups,
        wanted: npt.NDArray[np.bool_] | None,
        rows_before: int,
        delivered: DeliveredKeys | None,
        walked: Walked | None,
    ) -> Iterator[ChangeBatch]:
        self._unreadable = None
        slots = self._slots(found, walked)
        open_rows, (work, lengths) = self._worklist(found, slots, wanted, rows_before, delivered)
        if not len(work):
            return
        slots.load(found, work)
        images = PlainImages(found, slots, work, self._arena, lengths=lengths)
        found = images.found
        run = np.zeros((), d.RunState.dtype)
        run["group"] = 0 if rows_before else -1
        run["ordinal"] = rows_before
        status = d.DONE
        while status != d.DONE or run["item"] < len(work):
            if status == d.DONE:
                run["stop"] = images.advance()
                if images.fault is not None and run["stop"] == run["item"]:
                    self._unreadable = images.fault.group
                    error = images.fault.error
                    raise error if found.is_mysql else _of_group(error, groups, images.fault.group)
            if self._given_out and not self._options.reuse_buffers:
                self._writer = self._writer.fresh()
            writer, self._given_out = self._writer, False
            writer.reset()
            status = writer.run(found, work, slots, run)
            rows = int(run["rows"])
            if status == d.ROOM:
                writer.want_room(int(run["column"]), int(run["need"]))
            fault = None
            if status > d.ROOM:
                fault, event = run_fault(status, run, found, slots), int(run["event"])
                unreadable = int(found.events[event]["group"])
            if rows:
                self._given_out = True
                yield writer.batch(rows, found, slots, groups, open_rows)
            if fault is not None:
                self._unreadable = unreadable
                raise fault if found.is_mysql else _of_group(fault, groups, unreadable)


def _of_group(error: ProtocolError, groups: Groups, number: int) -> ProtocolError:
    """Return the same error with the GTID of its group."""
    gtid = f"{groups.domain[number]}-{groups.server_id[number]}-{groups.sequence_numbers[number]}"
    return type(error)(f"{error.placeless}, in transaction {gtid}", offset=error.offset, hint=error.hint)


def count_rows(
    data: Bytes, resolver: TableResolver, *, checksum: bool, carried: Sequence[CarriedGroup] = ()
) -> tuple[Groups, npt.NDArray[np.int64]]:
    """Count the row changes of selected tables in each group of a range.

    An UPDATE of one row counts once. Rows of an XA transaction count in the group that commits it; missing ones count
    nothing.

    Returns:
        The groups, and one int64 count per group.
    """
    found = scan(data, checksum=checksum)
    counts = np.zeros(len(found.groups), np.int64)
    tables = TableCache(resolver, None, ValuePolicy())
    for part in deliver(found, carried, unprepared=[]):
        slots = tables.slots(part)
        add_counts(part, slots, _wanted_events(part, slots), counts)
    return Groups(found.groups, found.expansion), counts


def count_group(
    data: Bytes, resolver: TableResolver, *, checksum: bool, on_progress: Passed
) -> tuple[Groups, npt.NDArray[np.int64]]:
    """Count as `count_rows` does, in exactly one group of any size that commits no XA transaction.

    Args:
        data: The bytes of the group.
        resolver: Selects the tables.
        checksum: True if events carry a CRC32.
        on_progress: Called with the offset up to which the walk has passed.
    """
    tables = TableCache(resolver, None, ValuePolicy())
    total = np.zeros(1, np.int64)
    block: EventBlock | None = None
    for block in event_blocks(data, checksum=checksum, on_progress=on_progress):
        slots = tables.slots(block.found)
        add_counts(block.found, slots, _wanted_events(block.found, slots), total)
    if block is None or not block.group_ended:
        return count_rows(data, resolver, checksum=checksum)
    groups = block.found.groups
    if groups["ending"][0] in (r.ENDS_ROLLBACK, r.ENDS_XA_PREPARE):
        total[:] = 0
    return Groups(groups, None), total


def count_by_table(
    found: Scan, resolver: TableResolver, *, carried: Sequence[CarriedGroup] = (), shown: npt.NDArray[np.bool_] | None
) -> dict[TableName, npt.NDArray[np.int64]]:
    """Count the row changes of selected tables in a scanned range. Rows of XA transactions count as in `count_rows`.

    Args:
        found: The scan of the range.
        resolver: Selects the tables.
        carried: XA groups that were prepared before the range and commit in it.
        shown: Per group, True if its rows count; None if all do.

    Returns:
        Three int64 counts per table, indexed by OP_*.
    """
    counts: dict[TableName, npt.NDArray[np.int64]] = {}
    tables = TableCache(resolver, None, ValuePolicy())
    for part in deliver(found, carried, unprepared=[]):
        slots = tables.slots(part)
        events = part.events if shown is None else part.events[shown[part.events["group"]]]
        keyed = events.copy()
        keyed["group"] = events["slot"] * r.OPERATIONS + events["op"]
        by_slot = np.zeros((len(part.maps), r.OPERATIONS), np.int64)
        add_counts(replace(part, events=keyed), slots, _wanted_events(replace(part, events=events), slots), by_slot)
        for slot in np.flatnonzero(by_slot.any(axis=1)).tolist():
            name = slots.table(slot).name
            counts[name] = counts.get(name, 0) + by_slot[slot]
    return counts


def add_counts(found: Scan, slots: SlotTable, work: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> None:
    """Add the rows of the rows events numbered in `work` to `counts`, indexed by the event's field `group`."""
    if not len(work):
        return
    run_over_images(count_images, found, slots, work, counts, walk_only=True)


def _wanted_events(found: Scan, slots: SlotTable) -> npt.NDArray[np.uint32]:
    """Return the numbers of rows events of selected tables and operations."""
    return np.flatnonzero(slots.selects(found.events)).astype(np.uint32)
