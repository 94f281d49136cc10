"""Rows of one table in a micro-batch in the form of the target's mode, computed by the task that decodes them.

Each mode has two functions: one makes net changes, the input of a MERGE. The other makes new rows to append, which are
snapshot rows, or all rows in append_log. For a table without a key, inserted rows are appended too. All functions read
flat rows in the order of the stream, with the columns of the table named by their numbers. They must equal the Spark
forms in `streaming_source/mirroring/modes`: `tests/mirroring/values/test_mode_tables.py` compares both with a model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.batch.latest_rows import (
    CHANGE,
    HISTORY,
    key_codes,
    last_places,
    with_deleted,
)
from streaming_source.mirroring.batch.table_rows import flat_rows, table_partitions
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, copied
from streaming_source.mirroring.writers.native.merge.partial_images import ABSENT, key_events, numbered_arrays
from streaming_source.schema import target_modes
from streaming_source.schema.row_schema import FLAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from streaming_source.mirroring.batch.latest_rows import LatestOfTable
    from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns

COMMITTED: Final = "_commit_timestamp"
GTID: Final = "_gtid"
SEQUENCE: Final = "_sequence"
_PLACE: Final = (COMMITTED, GTID, SEQUENCE)
"""Place of a change, in the order of a version's columns."""
_MARKS: Final = (COMMITTED, GTID)
"""Place of a deletion in soft_delete."""
_READ: Final = "read"
"""`_change_type` of snapshot rows in an append_log."""


def net_changes(
    mode: str, latest: LatestOfTable, batches: Iterable[pa.RecordBatch], left_out: OmittedColumns | None = None
) -> pa.Table | None:
    """Return the input rows for a MERGE of the mode; None if nothing changed.

    The columns are those of the target, named by their numbers. In all modes except a `soft_delete` of whole images,
    one more BOOLEAN column follows. It is true for a row with which the MERGE inserts nothing, but deletes the target's
    row (`current`), marks it (`soft_delete`) or closes a version (`history`). With `left_out`, the columns `kept_` with
    a number follow (see `key_events`), and snapshot rows are among the changes.

    Args:
        mode: the mode of the target.
        latest: the table and its key.
        batches: the table's part of the micro-batch, as flat rows.
        left_out: the known values of columns that images lack, if some do.
    """
    import pyarrow as pa

    if left_out is not None:
        return _partial_changes(mode, latest, batches, left_out)
    if mode == target_modes.HISTORY:
        found = map(copied, ordered_rows(latest, batches, read=False, metadata=(CHANGE, HISTORY, *_PLACE)))
        events = [one for rows in found if (one := with_deleted(rows, len(latest.columns))).num_rows]
        return _versions(pa.Table.from_batches(events), latest) if events else None
    if mode == target_modes.SOFT_DELETE:
        latest = replace(latest, metadata=_MARKS)
    last = list(latest(batches))
    if not last:
        return None
    (rows,) = pa.Table.from_batches(last).combine_chunks().to_batches()
    marked = _marked(rows, len(latest.columns)) if mode == target_modes.SOFT_DELETE else rows
    return pa.Table.from_batches([marked])


def _partial_changes(
    mode: str, latest: LatestOfTable, batches: Iterable[pa.RecordBatch], left_out: OmittedColumns
) -> pa.Table | None:
    """Return the result of `net_changes` for images that may lack columns, including snapshot rows.

    A snapshot row is an insert at its place, because a later change may lack columns that it has.
    """
    import pyarrow as pa

    own = {target_modes.HISTORY: _PLACE, target_modes.SOFT_DELETE: (COMMITTED, GTID, SEQUENCE)}.get(mode, (SEQUENCE,))
    metadata = (CHANGE, HISTORY, ABSENT, *own)
    parts = list(batches)
    images = list(map(copied, ordered_rows(latest, parts, read=False, metadata=metadata)))
    reads = [inserted(copied(rows)) for rows in ordered_rows(latest, parts, read=True, metadata=metadata)]
    if not images and not reads:
        return None
    (flat,) = pa.Table.from_batches([*images, *reads]).combine_chunks().to_batches()  # the caller bounds the rows
    if reads:
        flat = _in_order(flat)
    events = key_events(mode, flat, latest.keys, left_out)
    if mode == target_modes.HISTORY:
        return _versions(pa.Table.from_batches([events]), latest)
    columns = len(latest.columns)
    events = events.drop_columns([SEQUENCE])
    return pa.Table.from_batches([_marked_if_known(events, columns) if mode == target_modes.SOFT_DELETE else events])


def inserted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return snapshot rows as inserted rows.

    Raises:
        NativeWriteError: the rows lack columns, because some servers never log generated columns.
    """
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import repeated

    if rows.column(ABSENT).null_count < rows.num_rows:
        raise NativeWriteError("its snapshot rows lack columns")
    unended = pa.nulls(rows.num_rows, pa.bool_())
    kinds = {CHANGE: repeated("insert", rows.num_rows), HISTORY: unended}
    arrays = [kinds.get(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of one domain in the order of the stream; the two rows of an update stay together."""
    import pyarrow.compute as pc

    return rows.take(pc.sort_indices(rows, sort_keys=[(SEQUENCE, "ascending")]))


def new_rows(mode: str, latest: LatestOfTable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows to append to a target of the mode, with its columns named by their numbers."""
    if mode == target_modes.APPEND_LOG:
        yield from _log_rows(latest, batches)
        return
    metadata = _PLACE if mode == target_modes.HISTORY else ()
    for rows in ordered_rows(latest, batches, read=True, metadata=metadata):
        yield _valid(mode, rows, len(latest.columns))


def inserted_rows(mode: str, latest: LatestOfTable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the snapshot rows and inserted rows of a table without a key, for a target of the mode `current`.

    Raises:
        NativeWriteError: a row was changed or deleted, so one of its copies has to be removed. An append cannot do
            that.
    """
    import pyarrow.compute as pc

    parts = list(batches)
    for rows in ordered_rows(latest, parts, read=False, metadata=(CHANGE, HISTORY)):
        if rows.column(HISTORY).true_count or not pc.all(pc.equal(rows.column(CHANGE), "insert"), min_count=0).as_py():
            raise NativeWriteError("it has no key, and rows of it were changed or deleted")
        yield numbered_arrays(rows.columns[: len(latest.columns)])
    yield from new_rows(mode, latest, parts)


def first_state(mode: str, latest: LatestOfTable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a new target of the mode `current` or `soft_delete`, from snapshot rows and changes.

    Each key gets its row with the last place in the stream: a change may be older than the snapshot row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = len(latest.columns)
    parts = list(batches)
    found: list[pa.RecordBatch] = []
    for read in (False, True):
        rows = ordered_rows(latest, parts, read=read, metadata=(CHANGE, HISTORY, *_PLACE))
        found += map(copied, rows)
    if not found:
        return
    (flat,) = pa.Table.from_batches(found).combine_chunks().to_batches()  # the caller bounds the rows
    rows = with_deleted(_in_order(flat), columns)
    last = rows.take(last_places(rows, latest.keys)).select(list(range(columns + 3)))
    if mode == target_modes.SOFT_DELETE:
        yield _marked(last, columns)
    else:
        yield last.filter(pc.invert(last.column(columns))).select(list(range(columns)))


def ordered_rows(
    latest: LatestOfTable, batches: Iterable[pa.RecordBatch], *, read: bool, metadata: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield flat rows in the order of the stream. Each batch reuses the memory of the one before."""
    for part in sorted(table_partitions(batches), key=attrgetter("number")):
        yield from flat_rows(part, latest.name, latest.columns, metadata, read=read)


def _valid(mode: str, rows: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    """Return snapshot rows as valid rows of the mode."""
    import pyarrow as pa

    if mode == target_modes.CURRENT:
        return rows
    values, length = rows.columns[:columns], rows.num_rows
    if mode == target_modes.SOFT_DELETE:
        own = [_all(length, value=False), *_unknown((pa.timestamp("us", "UTC"), pa.string()), length)]
    else:
        committed, gtid, sequence = rows.columns[columns:]
        no_time, no_gtid, no_sequence = _unknown((committed.type, gtid.type, sequence.type), length)
        own = [committed, no_time, gtid, no_gtid, sequence, no_sequence, _all(length, value=True)]
    return numbered_arrays([*values, *own])


def _log_rows(latest: LatestOfTable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the flat shape; snapshot rows have the `_change_type` read."""
    from replica.rows.types.arrow_arrays import repeated

    metadata = [column.name for column in FLAT]
    place = len(latest.columns) + metadata.index(CHANGE)
    for part in sorted(table_partitions(batches), key=attrgetter("number")):
        for rows in flat_rows(part, latest.name, latest.columns, metadata, read=False):
            yield numbered_arrays(rows.columns)
        for rows in flat_rows(part, latest.name, latest.columns, metadata, read=True):
            arrays = list(rows.columns)
            arrays[place] = repeated(_READ, rows.num_rows)
            yield numbered_arrays(arrays)


def _marked(rows: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    """Return the last changes of keys with the columns of soft_delete."""
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted, committed, gtid = rows.columns[columns:]
    at, by = (pc.if_else(deleted, value, pa.nulls(len(value), value.type)) for value in (committed, gtid))
    return numbered_arrays([*rows.columns[:columns], deleted, at, by])


def _marked_if_known(events: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    """Return the last events of keys with the columns of soft_delete, and whether the MERGE inserts nothing.

    A deleted row with unknown values is marked if the target has it, and never inserted.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    width = columns + 1 + len(_MARKS)
    marked = _marked(events.select(list(range(width))), columns)
    kept = events.schema.names[width:]
    unknown = reduce(pc.or_, (events.column(name) for name in kept), _all(len(events), value=False))
    ends = pc.and_(events.column(columns), unknown)
    names = [*marked.schema.names, str(marked.num_columns), *kept]
    return pa.RecordBatch.from_arrays([*marked.columns, ends, *map(events.column, kept)], names=names)


def _versions(rows: pa.Table, latest: LatestOfTable) -> pa.Table:
    """Return the versions that changes open, and for each key one row that closes the version before them.

    A closing row ends at the place of the key's first change. Its beginning is that of the version that is valid after
    the micro-batch: a target that has this version already has the micro-batch. Columns `kept_` of opened versions
    follow.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from replica.rows.types.arrow_arrays import array_of

    columns = len(latest.columns)
    (flat,) = rows.combine_chunks().to_batches()  # bounded by `fits_one_task`
    codes = key_codes(flat, latest.keys)
    order = np.argsort(codes, kind="stable")
    codes, flat = codes[order], flat.take(array_of(order))
    deleted = np.frombuffer(pc.cast(flat.column(columns), pa.uint8()).buffers()[1], np.uint8, len(codes)) != 0
    same_as_next = np.r_[codes[1:] == codes[:-1], False]
    closing = np.flatnonzero(np.r_[True, ~same_as_next[:-1]])
    opened = np.flatnonzero(~deleted)
    last = np.flatnonzero(~same_as_next)  # the last event of each key; `closing` has the first
    begun = np.r_[np.where(deleted[last], -1, last), opened]
    ended = np.r_[closing, np.where(same_as_next, np.arange(len(codes)) + 1, -1)[opened]]
    values = flat.select(list(range(columns))).take(array_of(np.r_[closing, opened]))
    width = columns + 1 + len(_PLACE)
    places = flat.select(list(range(columns + 1, width)))
    starts, ends = (places.take(array_of(np.maximum(at, 0), at < 0)) for at in (begun, ended))
    own = [column for pair in zip(starts.columns, ends.columns, strict=True) for column in pair]
    closes = np.arange(len(begun)) < len(closing)
    found = numbered_arrays([*values.columns, *own, array_of(ended < 0), array_of(closes)])
    for name in flat.schema.names[width:]:
        kept = flat.column(name).take(array_of(np.r_[closing, opened]))
        found = found.append_column(name, pc.and_(kept, array_of(~closes)))
    return pa.Table.from_batches([found])


def _all(length: int, *, value: bool) -> pa.Array:
    import numpy as np

    from replica.rows.types.arrow_arrays import array_of

    return array_of(np.full(length, value))


def _unknown(kinds: Sequence[pa.DataType], length: int) -> list[pa.Array]:
    import pyarrow as pa

    return [pa.nulls(length, kind) for kind in kinds]
