"""Both decoders over the same bytes: the plain reference event by event, and the kernels range by range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.events.transaction_events import GtidEvent, XaId, XaPrepareEvent
from replica.protocol.groups.savepoints import SavepointText, inside_statement, last_named, savepoint_text
from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, TableTarget
from replica.rows.tables.layout import RowLayout, compile_layout
from replica.rows.types.types import ValuePolicy
from tests.kit.oracle import rows as reference
from tests.kit.oracle.images import plain_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import TableSchema


@dataclass
class Tables:
    """A resolver of named tables; None as schema means that the stream tells everything."""

    schemas: Mapping[str, TableSchema | None]
    resolved: list[str] = field(default_factory=list)
    columns: ColumnMatcher | None = None

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        name = f"{table_map.database}.{table_map.table}"
        self.resolved.append(name)
        return TableTarget(self.schemas[name], columns=self.columns) if name in self.schemas else None


class Row(NamedTuple):
    """One row change as the reference sees it, with the layout its images were read with."""

    gtid: tuple[int, int, int]
    ordinal: int
    table: str
    change: reference.RowChange
    layout: RowLayout


def reference_rows(data: bytes, tables: Tables, policy: ValuePolicy = ValuePolicy()) -> Iterator[Row]:  # noqa: B008
    """All wanted row changes of a whole binlog file, without those that were rolled back, with their transaction or to
    a savepoint.

    Rows of an XA transaction come where its XA COMMIT stands, if that is in the file.
    """
    prepared: dict[XaId | None, list[Row]] = {}
    xa: XaId | None = None
    maps: dict[int, TableMapEvent] = {}
    layouts: dict[bytes, RowLayout] = {}
    group: list[Row] = []
    savepoints = _Savepoints(data, accents=False)
    gtid, ordinal = (0, 0, 0), 0  # of the transaction, over all its events
    for found, event in decode_file(data):
        if isinstance(event, GtidEvent):
            yield from group
            group = []
            gtid, ordinal, xa = tuple(event.gtid), 0, event.xa
            savepoints = _Savepoints(data, accents=event.thread_id is not None)
        elif isinstance(event, QueryEvent) and event.query.startswith((b"SAVEPOINT ", b"ROLLBACK")):
            left, ordinal = savepoints.take(found.offset, event, len(group), ordinal)
            del group[left:]
        elif isinstance(event, XaPrepareEvent) and not event.one_phase:
            prepared[event.xa], group = group, []
        elif isinstance(event, QueryEvent) and event.query.startswith((b"XA COMMIT", b"XA ROLLBACK")):
            rows = prepared.pop(xa, [])
            group = [row._replace(gtid=gtid) for row in rows if event.query.startswith(b"XA COMMIT")]
        elif isinstance(event, TableMapEvent):
            maps[event.table_id] = event
        elif isinstance(event, RowsEvent) and not event.is_dummy:
            table_map = maps[event.table_id]
            name = f"{table_map.database}.{table_map.table}"
            layout = layouts.get(table_map.content) or _layout(table_map, tables, policy)
            layouts[table_map.content] = layout
            plain = plain_rows(event, table_map.columns, layout)
            for change in reference.read_rows(plain, layout, policy):
                if name in tables.schemas:
                    group.append(Row(gtid, ordinal, name, change, layout))
                ordinal += 1
    yield from group


class _Savepoints:
    """The savepoints of one transaction, each with its offset, and the rows and the ordinal before it."""

    def __init__(self, data: bytes, *, accents: bool) -> None:
        self._data = memoryview(data)
        self._accents = accents
        self._all: list[tuple[SavepointText, int, tuple[int, int]]] = []

    def take(self, at: int, event: QueryEvent, rows: int, ordinal: int) -> tuple[int, int]:
        """How many rows are left after the event, and which ordinal comes next."""
        if event.query == b"ROLLBACK":
            return 0, 0
        text = savepoint_text(event.query)
        assert text is not None, event
        text = text._replace(session=(event.status.charset, event.status.sql_mode))
        if not text.rolls_back:
            self._all.append((text, at, (rows, ordinal)))
            return rows, ordinal
        newest_first = [one for one, *_ in reversed(self._all)]
        number = last_named(text, newest_first, accents=self._accents, inside=self._inside)
        assert number is not None, event
        del self._all[len(self._all) - number :]
        return self._all[-1][2]

    def _inside(self, back: int) -> bool:
        places = [at for _, at, _ in self._all][: len(self._all) - back]
        return len(places) > 1 and inside_statement(self._data, *places[-2:])


def _layout(table_map: TableMapEvent, tables: Tables, policy: ValuePolicy) -> RowLayout:
    name = f"{table_map.database}.{table_map.table}"
    # An unwanted table is read only to count its rows: nothing of it is put out.
    asked = None if name in tables.schemas else ()
    return compile_layout(table_map, tables.schemas.get(name), asked, policy, shown=tables.columns)


class Decoded(NamedTuple):
    """All batches of a range as one: plain lists, Arrow arrays with the rows that have no image masked."""

    gtids: list[tuple[int, int, int]]
    ordinals: list[int]
    tables: list[str]
    ops: list[int]
    last: list[bool]
    before: list[pa.Array]
    after: list[pa.Array]
    columns: list[pa.Array]
    absent_before: list[list[str] | None]
    absent_after: list[list[str] | None]
    absent: list[list[str] | None]
    history: list[bool | None]
    batches: int


def kernel_rows(data: bytes, decoder: RangeDecoder, *, checksum: bool = True) -> Decoded:
    result = Decoded([], [], [], [], [], [], [], [], [], [], [], [], 0)
    before: list[list[pa.Array]] = []
    after: list[list[pa.Array]] = []
    columns: list[list[pa.Array]] = []
    batches = 0
    for batch in decoder.decode(data, checksum=checksum):
        batches += 1
        groups = batch.groups
        for group in batch.group.tolist():
            result.gtids.append((int(groups.domain[group]), int(groups.server_id[group]), int(groups.seq_no[group])))
        result.ordinals.extend(batch.ordinal.tolist())
        result.ops.extend(batch.op.tolist())
        result.last.extend(batch.last.tolist())
        result.tables.extend(".".join(batch.tables[i]) for i in batch.table.tolist())
        for told, array in (
            (result.absent_before, batch.absent_before),
            (result.absent_after, batch.absent_after),
            (result.absent, batch.absent),
            (result.history, batch.history),
        ):
            told.extend([None] * batch.rows if array is None else array.to_pylist())
        for arrays in (batch.before, batch.after, batch.columns):
            for array in arrays:
                array.validate(full=True)
                assert len(array) == batch.rows
        before.append([_masked(array, batch.before_valid.tolist()) for array in batch.before])
        after.append([_masked(array, batch.after_valid.tolist()) for array in batch.after])
        columns.append([_masked(array, [True] * batch.rows) for array in batch.columns])
    merged = [[pa.concat_arrays(parts) for parts in zip(*side, strict=True)] for side in (before, after, columns)]
    return result._replace(before=merged[0], after=merged[1], columns=merged[2], batches=batches)


def _masked(array: pa.Array, valid: list[bool]) -> pa.Array:
    """A copy with NULL where there is no image: what stands there is nobody's business."""
    taken = [i if ok else None for i, ok in enumerate(valid)]
    return array.take(pa.array(taken, pa.int64()))


def check_twin(
    data: bytes, tables: Tables, options: DecodeOptions, *, checksum: bool = True, rows: list[Row] | None = None
) -> Decoded:
    """Decode with both and compare everything; returns what the kernels gave.

    `rows`: what `reference_rows` gave for the same data, tables and policy.
    """
    if rows is None:
        rows = list(reference_rows(data, tables, options.policy))
    assert rows, "a comparison of nothing with nothing proves nothing"
    output = None if options.shape == "variant" else rows[0].layout.outputs
    decoded = kernel_rows(data, RangeDecoder(tables, options, output), checksum=checksum)
    changes = [row.change for row in rows]
    repeat = [
        2 if options.shape == "flat" and change.before is not None and change.after is not None else 1
        for change in changes
    ]
    expanded = [row for row, times in zip(rows, repeat, strict=True) for _ in range(times)]
    assert decoded.gtids == [row.gtid for row in expanded]
    assert decoded.ordinals == [row.ordinal for row in expanded]
    assert decoded.tables == [row.table for row in expanded]
    final = {row.gtid: index for index, row in enumerate(expanded)}
    assert decoded.last == [final[row.gtid] == index for index, row in enumerate(expanded)]
    if options.shape == "flat":
        ops, images = reference.flat(changes)
        assert decoded.ops == ops
        _same_typed(decoded.columns, images, expanded)
        told = [(op in (1, 3), row.change) for op, row in zip(ops, expanded, strict=True)]
        assert decoded.absent == [change.absent_before if first else change.absent_after for first, change in told]
        assert decoded.history == [change.closed_before if first else change.history for first, change in told]
        return decoded
    assert decoded.absent_before == [change.absent_before for change in changes]
    assert decoded.absent_after == [change.absent_after for change in changes]
    assert decoded.history == [change.history for change in changes]
    assert decoded.ops == [int(change.kind) for change in changes]
    sides = ((decoded.before, [c.before for c in changes]), (decoded.after, [c.after for c in changes]))
    for arrays, images in sides:
        if options.shape == "variant":
            expected = pa.concat_arrays(
                [reference.variant([image], row.layout) for row, image in zip(rows, images, strict=True)]
            )
            assert arrays[0].to_pylist() == expected.to_pylist()
        else:
            _same_typed(arrays, images, rows)
    return decoded


def _same_typed(arrays: list[pa.Array], images: list[reference.Image | None], rows: list[Row]) -> None:
    layouts = {id(row.layout): row.layout for row in rows}
    for layout in layouts.values():
        mine = [i for i, row in enumerate(rows) if row.layout is layout]
        expected = reference.typed([images[i] for i in mine], layout)
        for column, array, wanted in zip(layout.outputs, arrays, expected, strict=True):
            taken = array.take(pa.array(mine))
            assert taken.type == wanted.type
            assert taken.equals(wanted), f"{column.name}: {_first_difference(taken, wanted)}"


def _first_difference(left: pa.Array, right: pa.Array) -> str:
    for i in range(len(right)):
        if left[i].as_py() != right[i].as_py():
            return f"row {i}: {left[i]!r} is not {right[i]!r}"
    return "the buffers differ"
