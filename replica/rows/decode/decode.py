"""A range of relay log bytes -> batches of row changes in Arrow, in stream order.

One scan finds groups, rows events and distinct table maps; the resolver says which tables are wanted; one kernel then
decodes all wanted rows of all tables into the buffers of a batch. Rows of other tables that stand before a wanted row
of the same transaction are stepped over, because ordinals count every row; groups without wanted rows cost the scan
alone.

Images that kernels cannot read (compressed ones, MySQL's JSON) are written out plain before, in slices (images.py).

Shapes: `envelope` (before and after columns), `flat` (one row an image), `variant` (before and after as Spark VARIANT).

Rows of an XA transaction come at its XA COMMIT (xa.py); those that are only prepared in the range do not come.

Refused: what the scan refuses, images that do not fit their table map, values the server never writes, and an XA COMMIT
whose rows are not at hand. What stands before an image that cannot be read comes before the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from replica.errors import ConfigError, PrerequisiteError, ProtocolError, ReplicaError
from replica.rows.decode import records as d
from replica.rows.decode.batch import ChangeBatch, Groups
from replica.rows.decode.faults import run_fault
from replica.rows.decode.image_runs import run_over_images
from replica.rows.decode.images import Arena, PlainImages
from replica.rows.decode.kernel_walk import count_images
from replica.rows.decode.open_ends import WHOLE, OpenEnds
from replica.rows.decode.open_rows import OpenRows
from replica.rows.decode.slots import SlotTable, TableCache
from replica.rows.decode.worklist import Worklist, worklist
from replica.rows.decode.writers import TypedWriter, VariantWriter
from replica.rows.scan import records as r
from replica.rows.scan.blocks import EventBlock, event_blocks
from replica.rows.scan.record_memory import RecordMemory
from replica.rows.scan.scan import Bytes, Scan, scan, scan_until
from replica.rows.scan.xa import CarriedGroup, XaGroup, deliver
from replica.rows.tables.target import TableResolver, TableTarget
from replica.rows.types.types import OutputColumn, ValuePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from replica.errors import SchemaError
    from replica.rows.decode.batch import TableName
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.rows.scan.windows import Passed

__all__ = ["DecodeOptions", "RangeDecoder", "TableResolver", "TableTarget", "count_rows"]

Shape = Literal["envelope", "flat", "variant"]
GroupChoice: TypeAlias = "Callable[[Groups], npt.NDArray[np.bool_]]"
"""Says of the groups of a range which are wanted."""
Walked: TypeAlias = "Callable[[Scan, SlotTable], None]"
"""Takes a range's rows events, with the tables of their slots."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The options. `batch_rows` and `batch_bytes` (of row images) end a batch, whichever comes first; one row is never
    split.

    `reuse_buffers`: each batch overwrites the one before, and each range its groups, for readers that are done with
    them when they ask for the next. `want_sql`: batches carry the text of their statement as the server logged it
    (ANNOTATE_ROWS). `lenient`: an error of a single table does not end the decoding: `CompiledTable.fault` and
    `SlotTable.faults` tell of it. Only for output without columns.
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
    """The number of a group in its range, and what is wrong with one of its row images."""

    number: int
    error: ProtocolError


class RangeDecoder:
    """A decoder of ranges, one after the other; what it knows of tables is kept from one to the next."""

    def __init__(
        self,
        resolver: TableResolver,
        options: DecodeOptions,
        output: Sequence[OutputColumn] | None = None,
    ) -> None:
        """Keep the options. `output`: the columns of typed shapes, which all wanted tables are fitted to. None: VARIANT
        only.
        """
        if (output is None) != (options.shape == "variant"):
            raise ConfigError("typed shapes need output columns, and only they")
        columns = None if output is None else tuple(output)
        limits = (options.batch_rows, options.batch_bytes)
        self._options = options
        self._tables = TableCache(resolver, columns, options.policy, lenient=options.lenient)
        self._arena = Arena()
        self._records = RecordMemory() if options.reuse_buffers else None
        self._unreadable: int | None = None  # the group of the images that the last error is about
        self._given_out = False  # whether the writer's buffers are in a batch that someone may keep
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
        """Yield all wanted row changes of a range of whole event groups. Offsets in errors count from its start.

        At an event that must not be passed (INCIDENT, an unknown one) it stops with the error, after the groups before.
        At images that cannot be read it does so too, after the rows before them; or, with `unreadable`, which takes
        them, it goes on with the next group: what was given of the group itself is of no use then.

        `carried`: XA groups prepared before the range and committed in it, oldest first; an error in one of them counts
        from its own start, and says so. `unprepared` takes the XA COMMITs whose rows are neither there nor in the
        range; without it the first of them is a DataLossError. `only`: which groups are wanted at all; the others are
        not decoded. `ends`: of a range that was cut inside a transaction. `delivered`: how far tables are delivered
        that are being read meanwhile; None: they all are. `walked` is told of all rows events first, also those of
        tables that are not wanted, or not delivered.
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
                    behind = np.arange(len(groups)) > self._unreadable
                    left = behind if left is None else left & behind
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
    """Count the row changes of wanted tables in each of the range's groups (an UPDATE of one row counts once); return
    the groups too.

    Rows of an XA transaction count in the group that commits it; those that are not at hand count nothing.
    """
    found = scan(data, checksum=checksum)
    counts = np.zeros(len(found.groups), np.int64)
    tables = TableCache(resolver, None, ValuePolicy())
    for part in deliver(found, carried, unprepared=[]):
        slots = tables.slots(part)
        add_counts(part, slots, _wanted_events(part, slots), counts)
    return Groups(found.groups, found.expansion), counts


def count_group(
    data: Bytes, resolver: TableResolver, *, checksum: bool, passed: Passed
) -> tuple[Groups, npt.NDArray[np.int64]]:
    """Count as `count_rows` does in exactly one group, of any size, that commits no XA transaction; `passed` is told
    what has been walked over.
    """
    tables = TableCache(resolver, None, ValuePolicy())
    total = np.zeros(1, np.int64)
    block: EventBlock | None = None
    for block in event_blocks(data, checksum=checksum, passed=passed):
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
    """Count the row changes of wanted tables in a scanned range: three counts a table, indexed by OP_*.

    `shown`: per group, whether its rows count; None: all do. Rows of XA transactions as in `count_rows`.
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
    """Add the row changes of the rows events with the numbers `work` to `counts`, where `group` of each says."""
    if not len(work):
        return
    run_over_images(count_images, found, slots, work, counts, walk_only=True)


def _wanted_events(found: Scan, slots: SlotTable) -> npt.NDArray[np.uint32]:
    """Return the numbers of rows events of selected tables and operations."""
    return np.flatnonzero(slots.selects(found.events)).astype(np.uint32)
