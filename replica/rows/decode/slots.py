"""Compiled tables of a range, and their SLOT records for kernels.

`TableCache` compiles a table once per distinct table map, keyed by content, never by table id. The resolver's answer
for one content must hold for the life of the cache. `SlotTable` has the tables of one range.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import numpy as np

from replica.errors import ProtocolError, ReplicaError, SchemaError
from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.protocol.rows.values import fraction_width
from replica.rows.decode.batch import TableName
from replica.rows.decode.images import AbsentColumns
from replica.rows.decode.records import SlotRecord
from replica.rows.scan import records as r
from replica.rows.scan.scan import ID_AND_FLAGS
from replica.rows.tables.layout import ABSENT, RowLayout, StoredColumns, compile_layout
from replica.rows.tables.match import check_named
from replica.rows.tables.plan import has_hidden_width, skip_column
from replica.rows.types.charsets import conversion
from replica.rows.types.entry import KernelFacts, Widens
from replica.rows.types.kinds import (
    KIND_ROUNDED_DOUBLE,
    KIND_ROUNDED_FLOAT,
    KIND_ROW_END,
    KIND_ROW_END_TEXT,
    KIND_WIDENED,
    Kind,
    PlanRecord,
)
from replica.rows.types.types import KINDS, variant_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.writers import ColumnSet
    from replica.rows.scan.scan import Scan
    from replica.rows.tables.layout import TableResolver, TableTarget
    from replica.rows.tables.plan import ColumnPlan
    from replica.rows.types.types import OutputColumn, ValuePolicy
    from replica.schema.table import TableSchema
# A `Template` has PLAN records without output addresses, and owns the memory that its addresses point to (label
# tables, character tables). `Template.bind` adds the addresses of one ColumnSet.


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4)


class Template:
    """PLAN records of one table; `outputs[i]` is the output column that wire column i feeds, or ABSENT."""

    def __init__(self, columns: Sequence[ColumnPlan], outputs: Sequence[int], policy: ValuePolicy) -> None:
        self.records: Records = np.zeros(len(columns), PlanRecord.dtype)
        self.outputs = np.array(outputs, np.int64)
        self._keep: list[npt.NDArray[Any]] = []
        self._missing: npt.NDArray[np.int64] | None = None  # output columns without a wire column
        for record, plan, output in zip(self.records, columns, outputs, strict=True):
            record["width"] = -plan.prefix if plan.prefix else plan.width
            if output != ABSENT:
                self._parameters(record, plan, policy)
            elif plan.row_end:
                record["kind"] = KIND_ROW_END

    def _parameters(self, record: Records, plan: ColumnPlan, policy: ValuePolicy) -> None:  # noqa: C901, PLR0912
        entry = KINDS[plan.kind]
        code: int = plan.kind
        a = b = aux = 0
        strict_dates, strict_text = policy.invalid_dates == "error", policy.invalid_text == "error"
        match entry.binlog.facts:
            case KernelFacts.NOTHING:
                pass
            case KernelFacts.DIGITS:
                a, b = decimal_shape(plan.precision, plan.scale), plan.scale
                aux = 4 if plan.precision <= 9 else 8 if plan.precision <= 18 else 16
            case KernelFacts.DECIMALS:
                if plan.decimals is not None:
                    code = KIND_ROUNDED_FLOAT if plan.kind == Kind.FLOAT else KIND_ROUNDED_DOUBLE
                    a = plan.decimals
            case KernelFacts.CALENDAR:
                b = int(strict_dates)
            case KernelFacts.FRACTION:
                a, b = fraction_width(plan.fsp), int(strict_dates)
            case KernelFacts.FRACTION_TEXT:
                a, b = fraction_width(plan.fsp), plan.fsp
            case KernelFacts.LENGTH:
                a = plan.length
            case KernelFacts.LABELS:
                aux = self._address(label_table(plan.labels))
            case KernelFacts.TEXT:
                b = int(strict_text)
            case KernelFacts.CHARSET:
                assert plan.charset is not None  # noqa: S101  (the plan gives every text column one)
                code, a, table = conversion(plan.charset)
                b = int(strict_text)
                aux = 0 if table is None else self._address(table)
            case unknown:
                assert_never(unknown)
        if plan.widened:
            code, a, b = KIND_WIDENED, plan.widened, int(entry.widens is Widens.SIGNED)
        if plan.row_end:
            code = KIND_ROW_END_TEXT if plan.kind == Kind.TIMESTAMP_TEXT else KIND_ROW_END
        record["kind"], record["a"], record["b"], record["aux"] = code, a, b, aux

    def _address(self, table: npt.NDArray[Any]) -> int:
        self._keep.append(table)
        return address(table)

    def bind(self, columns: ColumnSet) -> Records:
        """Return a copy of the records with the addresses of a set of output columns."""
        bound = self.records.copy()
        wanted = self.outputs >= 0
        slots = self.outputs[wanted]
        for field, addresses in (("values", columns.values), ("valid", columns.valid), ("tail", columns.tail)):
            bound[field][wanted] = addresses[slots]
        return bound

    def absent(self, columns: ColumnSet) -> Records:
        """Return PLAN records of the output columns that no wire column feeds."""
        if self._missing is None:
            self._missing = np.setdiff1d(np.arange(len(columns.kinds)), self.outputs)
        missing = self._missing
        bound = np.zeros(len(missing), PlanRecord.dtype)
        for field, addresses in (("values", columns.values), ("valid", columns.valid), ("tail", columns.tail)):
            bound[field] = addresses[missing]
        return bound


def decimal_shape(precision: int, scale: int) -> int:
    """Pack the digit counts of a packed DECIMAL into one word; kernel_numbers.py lists the bit positions."""
    whole, fraction = precision - scale, scale
    lead, tail = whole % 9, fraction % 9
    return (
        _DIGIT_BYTES[lead]
        | (whole // 9) << 4
        | (fraction // 9) << 8
        | _DIGIT_BYTES[tail] << 12
        | 10**lead << 16
        | tail << 48
    )


@cache
def label_table(labels: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    """Build a label table: count, count + 1 offsets from the table's start (all u4), then the labels in UTF-8."""
    texts = [label.encode() for label in labels]
    start = 4 + (len(texts) + 1) * 4
    offsets = np.cumsum([start, *(len(text) for text in texts)])
    head = np.array([len(texts), *offsets], "<u4").tobytes()
    # Kernels copy short labels as blocks of 32 bytes.
    return np.frombuffer(head + b"".join(texts) + bytes(32), np.uint8)


# Maximal number of cached tables. The oldest are dropped, because some servers alter tables all day.
MAX_TABLES: Final = 4096

SELECTION: Final = np.dtype([("operations", np.int64), ("delivered", np.int64), ("skips", np.int64)])
"""Selection of a table: masks of selected and of delivered operations, and whether unchanged updates are skipped."""
VERSIONED, COMPARES, REWRITES = 1, 2, 4
"""Flags of a decoded table: it may have history rows, its updates are compared, some values are rewritten first."""


class SlotTemplate(NamedTuple):
    """The part of a table's slot that is equal in every range.

    A template is made once per table, because a range may have thousands of tables.
    """

    record: bytes
    flags: int = 0
    text: frozenset[int] = frozenset()


class CompiledTable:
    """One distinct table map, with its plans for walking and for decoding.

    `fault` is the error that refuses the rows of a selected table; only a lenient cache sets it.
    """

    def __init__(
        self,
        table_map: TableMapEvent,
        target: TableTarget | None,
        output: Sequence[OutputColumn] | None,
        policy: ValuePolicy,
        fault: ReplicaError | None = None,
    ) -> None:
        self.fault = fault
        self.name = TableName(table_map.database, table_map.table)
        self.operations = target.operations if target else 0
        self.delivered = target.delivered & self.operations if target else 0
        self.wanted = self.operations != 0
        self.skips = target is not None and target.skip_unchanged
        self.selection = np.array([(self.operations, self.delivered, self.skips)], SELECTION).tobytes()
        self._map = table_map
        self._target = target
        self._output = output
        self._policy = policy
        self._walk: Template | None = None
        self._decode: Template | None = None
        self._layout: RowLayout | None = None
        self._stored: StoredColumns | None = None
        self.metadata: npt.NDArray[np.uint8] | None = None
        self.ranks: npt.NDArray[np.int64] | None = None

    @property
    def table_map(self) -> TableMapEvent:
        return self._map

    @property
    def schema(self) -> TableSchema | None:
        """The catalog's definition of the table, None if it is unknown."""
        return self._target.schema if self._target else None

    @property
    def columns(self) -> int:
        return len(self._map.columns)

    def column_name(self, index: int) -> str:
        name = self._layout.columns[index].name if self._layout else self._map.columns[index].name
        return name or str(index + 1)

    @property
    def walk(self) -> Template:
        """A plan that steps over every column.

        The plan takes only two facts from the catalog, whose definition may be newer or older than the rows: the widths
        of old temporal formats, and the column that marks history rows.
        """
        if self._walk is None:
            schema = self.schema
            plans: list[ColumnPlan] | None = None
            if schema is not None and any(map(has_hidden_width, self._map.columns)):
                plans = list(compile_layout(self._map, schema, (), self._policy).columns)
            elif schema is not None and schema.versioned:
                with contextlib.suppress(SchemaError):  # raised when the rows are decoded
                    plans = list(compile_layout(self._map, schema, (), self._policy).columns)
            if plans is None:
                plans = [skip_column(column, column.name or "") for column in self._map.columns]
            self._walk = Template(plans, [-1] * len(plans), self._policy)
        return self._walk

    @property
    def layout(self) -> RowLayout:
        if self._layout is None:
            assert self._target is not None, "only wanted tables are decoded"  # noqa: S101
            self._layout = compile_layout(
                self._map, self._target.schema, self._output, self._policy, shown=self._target.columns
            )
        return self._layout

    @property
    def compares(self) -> bool:
        """True if updates are compared to skip unchanged ones. Tables of which no column is read are not compared."""
        return self.skips and any(column.kind != Kind.OPAQUE for column in self.layout.columns)

    @property
    def stored(self) -> StoredColumns:
        """The columns whose values are rewritten before `decode` applies."""
        if self._stored is None:
            self._stored = StoredColumns(self._map.columns, self.layout.columns)
        return self._stored

    @property
    def shown_names(self) -> tuple[str | None, ...]:
        """Output name of each wire column; empty for a table that is not selected."""
        return self.layout.names if self.wanted else ()

    @property
    def text(self) -> frozenset[int]:
        """Output columns whose bytes are copied unchecked, as UTF-8."""
        sources = enumerate(self.layout.sources)
        return frozenset(out for out, i in sources if i != ABSENT and self.layout.columns[i].kind == Kind.TEXT)

    @property
    def decode(self) -> Template:
        """A plan that decodes the requested columns; for VARIANT all columns, with the rank of each name."""
        if self._decode is None:
            layout = self.layout
            if self._output is None:
                columns = layout.columns
                shown = sorted((c.name, i) for i, c in enumerate(columns) if not c.hidden)
                self.metadata = np.frombuffer(variant_metadata([name for name, _ in shown]), np.uint8)
                self.ranks = np.array([index for _, index in shown], np.int64)
                ranks = {index: rank for rank, (_, index) in enumerate(shown)}
                self._decode = Template(columns, [ranks.get(i, ABSENT) for i in range(len(columns))], self._policy)
                self._decode.records["values"] = self._decode.outputs
            else:
                self._decode = Template(layout.columns, layout.slots, self._policy)
        return self._decode

    @cached_property
    def walked_slot(self) -> SlotTemplate:
        """The slot of a table in a range whose images are stepped over."""
        return SlotTemplate(self._slot(self.walk).tobytes())

    @cached_property
    def decoded_slot(self) -> SlotTemplate:
        """The slot of a table in a range whose images are decoded."""
        record = self._slot(self.decode)
        flags = ((VERSIONED, self.layout.versioned), (COMPARES, self.compares), (REWRITES, self.stored))
        return SlotTemplate(record.tobytes(), sum(flag for flag, holds in flags if holds), self.text)

    def _slot(self, template: Template) -> Records:
        record: Records = np.zeros(1, SlotRecord.dtype)
        record["columns"] = self.columns
        record["plan_before"] = address(template.records)
        if self.metadata is not None and self.ranks is not None:
            record["metadata"] = address(self.metadata)
            record["metadata_size"] = len(self.metadata)
            record["ranks"] = address(self.ranks)
            record["shown"] = len(self.ranks)
        return record


class TableCache:
    """Compiled tables by table map content.

    A `lenient` cache keeps the error of a table as its `fault`, and the walk over the other tables continues. Rows of
    that table are stepped over if the table map gives their widths; otherwise the table is not selected. Only for
    output without columns.
    """

    def __init__(
        self,
        resolver: TableResolver,
        output: Sequence[OutputColumn] | None,
        policy: ValuePolicy,
        *,
        lenient: bool = False,
    ) -> None:
        assert not lenient or output == (), "rows of a table with a fault have no columns"  # noqa: S101
        self._resolver = resolver
        self._output = output
        self._policy = policy
        self._lenient = lenient
        self._tables: dict[bytes, CompiledTable] = {}

    def table(self, body: memoryview, offset: int, *, mysql: bool = False) -> CompiledTable:
        """Return the compiled table of a TABLE_MAP body.

        Args:
            body: The body, without header and checksum.
            offset: The byte offset of the body in the range, for errors.
            mysql: True for a log that MySQL wrote.
        """
        content = bytes(body[ID_AND_FLAGS:])
        return self._tables.get(content) or self._compiled(content, offset, mysql=mysql)

    def _compiled(self, content: bytes, offset: int, *, mysql: bool) -> CompiledTable:
        table = self._made(content, offset, mysql=mysql)
        if len(self._tables) >= MAX_TABLES:
            del self._tables[next(iter(self._tables))]
        self._tables[content] = table
        return table

    def _made(self, content: bytes, offset: int, *, mysql: bool) -> CompiledTable:
        table_map = _parse(content, offset, mysql=mysql)
        try:
            target = self._resolver.resolve(table_map)
        except ReplicaError as error:
            if not self._lenient:
                raise
            return CompiledTable(table_map, None, self._output, self._policy, error)
        if target is None or not self._lenient:
            return CompiledTable(table_map, target, self._output, self._policy)
        return self._with_fault(table_map, target)

    def _with_fault(self, table_map: TableMapEvent, target: TableTarget) -> CompiledTable:
        """Compile a selected table; an error of its definition becomes the `fault` of the result."""
        try:
            if target.schema is None:
                check_named(table_map)
            compile_layout(table_map, target.schema, (), self._policy)
        except SchemaError as error:
            hidden = any(map(has_hidden_width, table_map.columns))  # then only a definition gives the widths
            bare = None if hidden else replace(target, schema=None)
            return CompiledTable(table_map, bare, self._output, self._policy, error)
        return CompiledTable(table_map, target, self._output, self._policy)

    def slots(self, found: Scan) -> SlotTable:
        data, maps = found.data.data, found.maps
        places = zip(maps["content"].tolist(), maps["size"].tolist(), strict=True)
        contents = [bytes(data[begin : begin + size]) for begin, size in places]
        known = list(map(self._tables.get, contents))
        tables = [
            self._of_map(found, slot, contents[slot]) if table is None else table for slot, table in enumerate(known)
        ]
        return SlotTable(tables)

    def _of_map(self, found: Scan, slot: int, content: bytes) -> CompiledTable:
        offset = found.origin(int(found.maps["content"][slot]) - ID_AND_FLAGS)
        return self._compiled(content, offset, mysql=found.is_mysql)


def _parse(content: bytes, offset: int, *, mysql: bool) -> TableMapEvent:
    try:
        return _parsed(content, mysql=mysql)
    except ProtocolError as error:
        message = error.placeless
        raise type(error)(message, offset=offset + (error.offset or 0), hint=error.hint) from None


@lru_cache(maxsize=MAX_TABLES)
def _parsed(content: bytes, *, mysql: bool) -> TableMapEvent:
    """Return the table map of this content, for any table id.

    Cached, because each task of a mirror parses the table maps of all tables of a batch.
    """
    return parse_table_map(bytes(ID_AND_FLAGS) + content, mysql=mysql)


class SlotTable:
    """The tables of one range, in the order of the scan's table maps, and their SLOT records."""

    def __init__(self, tables: list[CompiledTable]) -> None:
        self._tables = tables
        selection = np.frombuffer(b"".join([table.selection for table in tables]), SELECTION)
        self.wanted: npt.NDArray[np.bool_] = selection["operations"] != 0
        self._halved: npt.NDArray[np.bool_] = np.zeros(len(tables), np.bool_)
        self._masks: npt.NDArray[np.int64] = selection["delivered"].copy()
        self._selected = _operations(selection["operations"])
        self._delivered = _operations(selection["delivered"])
        self._everything = bool(self._selected.all())
        self.filtered = not np.array_equal(self._selected, self._delivered)  # whether a filter drops rows
        self.skips = bool(selection["skips"].any())  # whether updates may have to be compared
        numbers: dict[TableName, int] = {}
        self._number = np.array([numbers.setdefault(table.name, len(numbers)) for table in tables], np.int64)
        self.names: list[TableName] = list(numbers)
        self.records: Records = np.zeros(len(tables), SlotRecord.dtype)
        self._used: list[int] = []
        self._rewritten: list[int] = []
        self._absent: AbsentColumns | None = None
        self.versioned = False  # whether any table of the worklist is system-versioned
        self.text: frozenset[int] = frozenset()  # output columns of unchecked UTF-8
        self._keep: list[Records] = []
        self.faults: dict[TableName, ReplicaError] = {}
        """Tables whose rows are skipped in this range because of an error; only with a lenient cache."""

    def table(self, slot: int) -> CompiledTable:
        return self._tables[slot]

    def leave_out(self, left_out: npt.NDArray[np.bool_]) -> None:
        """Remove tables from the selection in this range; `left_out` is a mask over the slots."""
        self.wanted &= ~left_out
        self._masks[left_out] = 0
        self._selected[left_out] = self._delivered[left_out] = False
        self._everything = bool(self._selected.all())

    def leave_out_faulty(self, errors: Mapping[int, ReplicaError]) -> None:
        """Remove tables from the selection in this range, and keep their errors. `errors` is keyed by slot."""
        for slot, error in errors.items():
            self.faults.setdefault(self._tables[slot].name, error)
        left_out = np.array([table.name in self.faults for table in self._tables], np.bool_)
        self.leave_out(left_out)

    def take_halves(self, tables: npt.NDArray[np.bool_]) -> None:
        """Select the updates of these tables if their inserts or deletes are selected.

        An update of a row that enters or leaves the delivered part becomes an insert or a delete. Such updates are not
        compared: an update that changes no column that is read may still change the key. `tables` is a mask over the
        slots.
        """
        self._halved |= tables
        halves = 1 << r.OP_INSERT | 1 << r.OP_DELETE
        self._masks[tables & (self._masks & halves != 0)] |= 1 << r.OP_UPDATE
        for flags in (self._selected, self._delivered):
            flags[tables, r.OP_UPDATE] |= flags[tables, r.OP_INSERT] | flags[tables, r.OP_DELETE]

    def selects(self, events: Records) -> npt.NDArray[np.bool_]:
        """Mark the rows events whose table and operation are selected."""
        if self._everything:
            return np.ones(len(events), np.bool_)
        return self._selected[events["slot"], events["op"]]

    def delivers(self, events: Records) -> npt.NDArray[np.bool_]:
        """Mark the selected rows events that a filter keeps."""
        return self._delivered[events["slot"], events["op"]]

    def compares(self, events: Records) -> npt.NDArray[np.bool_]:
        """Mark the selected updates of tables that skip unchanged updates."""
        found = np.zeros(len(events), np.bool_)
        if not self.skips:
            return found
        updates = np.flatnonzero(self.selects(events) & (events["op"] == r.OP_UPDATE))
        tables = events["slot"][updates]
        for slot in np.unique(tables).tolist():
            if self._tables[slot].compares:
                found[updates[tables == slot]] = True
        return found

    def name(self, slot: int) -> str:
        return ".".join(self._tables[slot].name)

    def column_name(self, slot: int, column: int) -> str:
        return self._tables[slot].column_name(column)

    def load(self, found: Scan, work: npt.NDArray[np.uint32], *, walk_only: bool = False) -> None:
        """Fill the records of the tables in the worklist, except the addresses of output buffers."""
        counts = np.bincount(found.events["slot"][work], minlength=len(self._tables))
        used = np.flatnonzero(counts)
        self._used = used.tolist()
        tables = [self._tables[slot] for slot in self._used]
        decoded = [False] * len(tables) if walk_only else self.wanted[used].tolist()
        templates = [
            table.decoded_slot if wanted else table.walked_slot for table, wanted in zip(tables, decoded, strict=True)
        ]
        self.records[used] = np.frombuffer(b"".join([one.record for one in templates]), SlotRecord.dtype)
        self.records["wanted"][used] = self._masks[used]
        self.records["table"][used] = self._number[used]
        flags = np.array([one.flags for one in templates], np.int64)
        if self.skips:
            compared = used[(flags & COMPARES != 0) & ~self._halved[used]]
            self.records["wanted"][compared] |= r.SKIP_UNCHANGED
        self.versioned = self.versioned or bool((flags & VERSIONED).any())
        self.text = self.text.union(*{one.text for one in templates})
        self._rewritten = used[flags & REWRITES != 0].tolist()

    def stored(self) -> dict[int, StoredColumns]:
        """Return, by slot, the columns to rewrite, for the decoded tables that `load` filled."""
        return {slot: self._tables[slot].stored for slot in self._rewritten}

    def absent(self, found: Scan) -> AbsentColumns:
        """Return the columns that the images of the range lack."""
        if self._absent is None:
            tables = self._tables  # not `self`: a reference cycle would keep the range until garbage collection
            self._absent = AbsentColumns(found, lambda slot: tables[slot].shown_names)
        return self._absent

    @property
    def max_columns(self) -> int:
        return int(self.records["columns"].max())  # unused tables have zero

    def bind(self, before: ColumnSet, after: ColumnSet) -> None:
        """Write the addresses of these buffers into the plans of the selected tables."""
        self._keep = []
        for slot in self._used:
            table, record = self._tables[slot], self.records[slot]
            if not self.wanted[slot]:
                continue
            sides = (
                (before, "plan_before", "absent_before"),
                (after, "plan_after", "absent_after"),
            )
            for side, plan_field, absent_field in sides:
                plan, absent = table.decode.bind(side), table.decode.absent(side)
                self._keep += [plan, absent]
                record[plan_field] = address(plan)
                record[absent_field] = address(absent)
                record["absent"] = len(absent)


def _operations(masks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return, per table, one flag for each operation."""
    return (masks[:, None] >> np.arange(r.OPERATIONS) & 1).astype(np.bool_)
