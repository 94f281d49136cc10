"""Keys of the rows of a range, and selection of the rows inside the delivered part of their tables during a snapshot.

`RowKeys` matches the catalog's key columns to each table map by name, as records for kernels that read the keys of
rows. A table map that lacks a key column, or has one of another type, is refused, because its rows cannot be
identified.

`OpenRows` removes tables of which nothing is delivered. For partly delivered tables, `find` decides which rows the
worklist must contain, and `settle` corrects the batch. An update that crosses the border counts as an insert or a
delete: `op` says which, and `kept` marks the rows that count. Images without their key are refused, and so are partial
images of rows that enter the delivered part: both need binlog_row_image=FULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replica.errors import KeyChangedError, PrerequisiteError, SchemaError
from replica.native.arrays import address
from replica.rows.decode import records as d
from replica.rows.decode.frontier import WHOLE
from replica.rows.decode.images import Arena, PlainImages
from replica.rows.decode.kernels.kernel_frontier import (
    DROPPED,
    ENTERS,
    LEAVES,
    MAX_KEY_BYTES,
    MORE_FLAGS,
    PARTIAL_ROW,
    UNTOLD_KEY,
    FrontierRecord,
    KeyScratch,
    KeyValueRecord,
    RowKeyRecord,
    find_halves,
)
from replica.rows.decode.slots import TableCache
from replica.rows.decode.writers import run_fault
from replica.rows.scan import records as r
from replica.rows.scan.scan import scan_until
from replica.rows.scan.xa import deliver
from replica.rows.tables.match import disagreement
from replica.rows.types.keys import READ_AGAIN, key_part, key_records
from replica.rows.types.types import ValuePolicy
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.frontier import DeliveredKeys, OpenEnds
    from replica.rows.decode.slots import CompiledTable, SlotTable
    from replica.rows.scan.scan import Bytes, Scan
    from replica.rows.scan.xa import CarriedGroup
    from replica.rows.tables.layout import TableResolver
    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema


class RowKeys:
    """The records of one range.

    Attributes:
        records: RowKeyRecord per table map.
        wanted: Mask of the table maps whose keys are read.
        most: Number of columns of the longest key.
    """

    def __init__(
        self,
        slots: SlotTable,
        columns_of: Callable[[tuple[str, str]], Sequence[ColumnSchema] | None],
        unfit: dict[int, SchemaError] | None = None,
    ) -> None:
        """Make the records.

        Args:
            slots: The tables of the range.
            columns_of: Returns the key columns of a table in key order, None for a table whose key is not read.
            unfit: Receives the numbers of table maps that do not fit their table, with the error. Their keys are not
                read.

        Raises:
            SchemaError: A table map does not fit its table, and `unfit` is None.
        """
        count = len(slots.records)
        self.records: Records = np.zeros(count, RowKeyRecord.dtype)
        self.wanted: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.most = 1
        self._keep: list[npt.NDArray[Any]] = []
        for slot in range(count):
            table = slots.table(slot)
            key = columns_of(table.name)
            if key is None:
                continue
            try:
                self._add(slot, table, key)
            except SchemaError as error:
                if unfit is None:
                    raise
                unfit[slot] = error

    def _add(self, slot: int, table: CompiledTable, key: Sequence[ColumnSchema]) -> None:
        indexes = key_columns(table.table_map, [plan.name for plan in table.layout.columns], key)
        columns = table.table_map.columns
        for number, declared in zip(indexes, key, strict=True):
            if what := disagreement(columns[number], declared):
                why = f"column {declared.name} is {declared.column_type}, but its {what} in the binlog is different."
                raise _key_changed_error(table.table_map, why)
        ranks = np.full(len(columns), -1, np.int64)
        ranks[indexes] = np.arange(len(indexes))
        try:
            parts = key_records(
                [key_part(number, columns[number], declared) for number, declared in zip(indexes, key, strict=True)]
            )
        except SchemaError as error:
            raise _key_changed_error(table.table_map, error.message) from None
        self._keep += [ranks, parts]
        self.records[slot] = (address(parts), len(parts), address(ranks))
        self.wanted[slot] = True
        self.most = max(self.most, len(indexes))


def key_columns(table_map: TableMapEvent, names: Sequence[str], key: Sequence[ColumnSchema]) -> list[int]:
    """Return the wire numbers of the key's columns; `names` are the names of the wire columns."""
    places = {column_key(name): number for number, name in enumerate(names)}
    missing = [column.name for column in key if column_key(column.name) not in places]
    if missing:
        raise _key_changed_error(table_map, f"they have no column {missing[0]}.")
    return [places[column_key(column.name)] for column in key]


def _key_changed_error(table_map: TableMapEvent, why: str) -> KeyChangedError:
    return KeyChangedError(
        f"rows of {table_map.database}.{table_map.table} in the binlog do not have the key that the snapshot uses, "
        f"so the table was altered meanwhile: {why}",
        hint=READ_AGAIN,
    )


FIRST_FLAGS: Final = 1 << 12
"""Initial number of rows of the flag array; it doubles when it is full."""


class OpenRows:
    """The rows of one range. `opened` marks the table maps of partly delivered tables."""

    def __init__(
        self,
        found: Scan,
        slots: SlotTable,
        delivered: DeliveredKeys,
        rows_before: int,
        unfit: dict[int, SchemaError] | None = None,
    ) -> None:
        """Remove the tables of which nothing is delivered.

        Args:
            found: The scan of the range.
            slots: The tables of its slots.
            delivered: The delivered part of the tables.
            rows_before: Rows of the first group before the range.
            unfit: Receives the table maps that lack the key of their tables, as in `RowKeys`.
        """
        upto: dict[tuple[str, str], bytes] = {}
        columns: dict[tuple[str, str], tuple[ColumnSchema, ...]] = {}
        count = len(slots.records)
        left_out = np.zeros(count, np.bool_)
        for slot in np.flatnonzero(slots.wanted).tolist():
            name = slots.table(slot).name
            known = delivered.of(name)
            if isinstance(known, bool):
                left_out[slot] = not known
            elif known.upto is not None:
                upto[name], columns[name] = known.upto, known.columns
        slots.leave_out(left_out)
        self._found = found
        self._slots = slots
        self._rows_before = rows_before
        self.refused: int | None = None
        """Number of the table map whose rows `find` refused, None if it refused none."""
        self._keys = RowKeys(slots, columns.get, unfit)
        self.opened = self._keys.wanted
        self._frontiers: Records = np.zeros(count, FrontierRecord.dtype)
        self._upto = {name: np.frombuffer(key or b"\0", np.uint8) for name, key in upto.items()}
        for slot in np.flatnonzero(self.opened).tolist():
            table = slots.table(slot)
            self._frontiers[slot] = (
                1,
                address(self._upto[table.name]),
                len(upto[table.name]),
                table.operations,
                table.delivered,
                int(table.compares),
            )
        slots.take_halves(self.opened)
        self._bases: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._flags: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def find(self, work: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64]) -> None:
        """Decide which rows of these events lie inside the delivered part.

        Args:
            work: uint32 event numbers of whole groups, up to their last event of an open table.
            lengths: int64 per event of the range. For events of open tables, receives the bytes of images up to the
                last selected row.

        Raises:
            PrerequisiteError: An image lacks a required column.
            ProtocolError: Images that do not fit their table map.
        """
        slots = self._slots
        slots.load(self._found, work)
        images = PlainImages(self._found, slots, work, Arena())
        found = images.found
        run = np.zeros((), d.RunState.dtype)
        run["group"] = -1
        self._bases = np.zeros(len(found.events), np.int64)
        flags = np.empty(FIRST_FLAGS, np.uint8)
        values = np.zeros((2, self._keys.most), KeyValueRecord.dtype)
        key = np.empty(MAX_KEY_BYTES, np.uint8)
        scratch = np.array((address(values[0]), address(values[1]), address(key)), KeyScratch.dtype)
        while run["item"] < len(work):
            stop = images.advance()
            if images.fault is not None and stop == run["item"]:
                raise images.fault.error
            status = MORE_FLAGS
            while status == MORE_FLAGS:
                status = find_halves(
                    *(address(found.data), address(found.events), address(work), stop, address(slots.records)),
                    *(address(self._keys.records), address(self._frontiers), address(scratch)),
                    *(address(lengths), address(self._bases), address(flags), len(flags)),
                    *(self._rows_before, address(run)),
                )
                if status == MORE_FLAGS:
                    flags = np.concatenate((flags, np.empty_like(flags)))
            if status in (UNTOLD_KEY, PARTIAL_ROW):
                self.refused = int(self._found.events[int(run["event"])]["slot"])
                raise self._partial(status, run)
            if status != d.DONE:
                raise run_fault(status, run, found, slots)
        self._flags = flags[: int(run["rows"])]

    def settle(self, batch: ChangeBatch, *, flat: bool) -> None:
        """Change updates that cross the border to inserts and deletes, and mark the rows that count."""
        if not self.opened.any() or batch.event is None:
            return
        opened = self.opened[self._found.events["slot"][batch.event]]
        rows = np.flatnonzero(opened)
        if not len(rows):
            return
        flags = self._flags[self._bases[batch.event[rows]] + batch.ordinal[rows]]
        kept = np.ones(batch.rows, np.bool_)
        kept[rows] = flags != DROPPED
        leaves, enters = rows[flags == LEAVES], rows[flags == ENTERS]
        if flat:
            first = batch.op == r.OP_UPDATE
            kept[leaves] = first[leaves]
            kept[enters] = ~first[enters]
            dropped = np.flatnonzero(~kept & batch.last)
            batch.last[dropped[batch.op[dropped] == d.FLAT_AFTER] - 1] = True
        batch.op[leaves] = d.FLAT_DELETE if flat else r.OP_DELETE
        batch.op[enters] = r.OP_INSERT
        if not kept.all():
            batch.kept = kept

    def _partial(self, status: int, run: Records) -> PrerequisiteError:
        event = self._found.events[int(run["event"])]
        group = self._found.groups[int(event["group"])]
        sequence = int(group["sequence"]) & 0xFFFFFFFFFFFFFFFF
        gtid = f"{int(group['domain'])}-{int(group['server'])}-{sequence}"
        what = "do not contain the key of a row" if status == UNTOLD_KEY else "hold only a part of the columns of a row"
        return partial_images(gtid, self._slots.name(int(event["slot"])), what)


def partial_images(gtid: str, table: str, what: str) -> PrerequisiteError:
    """Make the error for a transaction without whole row images, in a table whose snapshot is running."""
    return PrerequisiteError(
        f"the row images of transaction {gtid} {what} of {table} while the snapshot of the table is running.",
        hint="Let every session write with binlog_row_image=FULL, and start again with a new checkpoint.",
    )


# Without the key, no task can decide which rows lie inside the delivered part. `unfit_keys` decodes no row.


def unfit_keys(
    data: Bytes,
    resolver: TableResolver,
    delivered: DeliveredKeys,
    *,
    checksum: bool,
    carried: Sequence[CarriedGroup] = (),
    ends: OpenEnds = WHOLE,
) -> set[TableName]:
    """Return the partly delivered tables whose table maps in the range do not have the snapshot's key.

    The range is given as for `RangeDecoder.decode`. Other faults of the range are ignored: the task that decodes the
    range reports them.
    """
    columns = {table.name: table.columns for table in delivered.open if table.upto is not None}
    if not columns:
        return set()
    tables = TableCache(resolver, None, ValuePolicy())
    found, _ = scan_until(data, checksum=checksum)
    names: set[TableName] = set()
    for part in [found] if ends.committed else deliver(found, carried, unprepared=[]):
        slots = tables.slots(part)
        unfit: dict[int, SchemaError] = {}
        RowKeys(slots, columns.get, unfit)
        for slot in np.unique(part.events["slot"]).tolist():
            if isinstance(unfit.get(slot), KeyChangedError):
                names.add(slots.table(slot).name)
    return names
