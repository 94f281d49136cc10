"""Changes of a table without a key: the change in the number of copies of each row, and the files that have these rows.

A change removes one row that equals its before image bit by bit, and adds one that equals its after image. So the order
of changes is irrelevant, and a micro-batch is a number for each distinct row. `counted_changes` finds the numbers, and
`counted_files` rewrites the files of the target from which rows are removed. The task removes no file and makes no
commit. The driver does both in one step, and only if the files still exist (`append_files`). So a late or repeated task
changes nothing. `streaming_source/mirroring/modes/current.py` has the same algorithm for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming_source.mirroring.batch.latest_rows import CHANGE, HISTORY
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    copied,
    files_of,
    physical_name,
    remove_files,
    rows_of,
    with_deletion_vectors,
    write_file,
)
from streaming_source.mirroring.writers.native.delta_rows import check_old_files, check_target, keep, opened, refused
from streaming_source.mirroring.writers.native.merge.equal_rows import EqualRows, flags, row_codes
from streaming_source.mirroring.writers.native.merge.net_changes import inserted, ordered_rows
from streaming_source.mirroring.writers.native.merge.partial_images import ABSENT, whole_rows
from streaming_source.mirroring.writers.native.rewritten_files import (
    MOST_BYTES,
    SMALL_BYTES,
    has_changeable_rows,
    limits_allow,
    rewritten,
    whole_numbers,
)
from streaming_source.sinks.storage import files_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming_source.mirroring.batch.latest_rows import LatestOfTable
    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.mirroring.writers.native.delta_rows import TargetShape
    from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns

    Numbers = npt.NDArray[np.int64]


class CountedChanges(NamedTuple):
    """Distinct rows of a table, and the change in the number of copies of each row.

    The rows have the names and types of the target.
    """

    rows: pa.Table
    more: Numbers


def counted_changes(
    latest: LatestOfTable,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    names: Sequence[str],
    left_out: OmittedColumns | None,
) -> CountedChanges:
    """Return the change in the number of copies of each row in a micro-batch, including snapshot rows.

    Args:
        latest: the table, without a key.
        batches: the table's part of a micro-batch, as flat rows.
        schema: the columns of the target.
        names: the names of the columns, in the order of the table's columns.
        left_out: the known values of columns that images lack, if some do.

    Raises:
        NativeWriteError: a value is unknown, or does not fit into the target.
    """
    import numpy as np
    import pyarrow as pa

    parts = list(batches)
    columns = len(latest.columns)
    typed = pa.schema([schema.field(name) for name in names])
    metadata = (CHANGE, HISTORY) if left_out is None else (CHANGE, HISTORY, ABSENT)
    found: list[pa.Table] = []
    steps: list[Numbers] = []
    images = list(map(copied, ordered_rows(latest, parts, read=False, metadata=metadata)))
    if images:
        (flat,) = pa.Table.from_batches(images).combine_chunks().to_batches()  # the caller bounds the rows
        if left_out is not None:
            flat = whole_rows(flat, left_out)
        step = _steps(flat)
        counts = step != 0
        kept = flat.take(_places(counts))
        found.append(_typed(kept, columns, typed))
        steps.append(step[counts])
    for rows in map(copied, ordered_rows(latest, parts, read=True, metadata=metadata)):
        if left_out is not None:
            inserted(rows)  # refuses rows that lack columns
        found.append(_typed(rows, columns, typed))
        steps.append(np.ones(rows.num_rows, np.int64))
    if not found:
        return CountedChanges(pa.Table.from_batches([], typed), np.empty(0, np.int64))
    return _summed(pa.concat_tables(found), np.concatenate(steps))


def count_in(
    folder: str,
    target: TargetShape,
    latest: LatestOfTable,
    batches: Iterable[pa.RecordBatch],
    left_out: OmittedColumns | None,
) -> tuple[list[DataFile], list[TableFile]]:
    """Write new files for a part of a micro-batch, and return them and the files that they replace.

    Args:
        folder: the folder of the target.
        target: the target.
        latest: the table.
        batches: the table's part of the micro-batch, as flat rows.
        left_out: the known values of columns that images lack, if some do.

    Raises:
        NativeWriteError: the target lacks a row that has to be removed, or its files cannot be rewritten. No new file
            is left.
    """
    import pyarrow as pa

    with refused(folder):
        table = opened(folder)
        check_target(table, target)
        schema = pa.schema(table.schema().to_arrow())
        if sorted(target.names) != sorted(schema.names):
            raise NativeWriteError(f"its columns are {', '.join(schema.names)}")
        changes = counted_changes(latest, batches, schema, target.names, left_out)
        written = counted_files(table, folder, changes)
        keep(folder, table)
    return written


def counted_files(table: DeltaTable, folder: str, changes: CountedChanges) -> tuple[list[DataFile], list[TableFile]]:
    """Return the result of `count_in` for changes that are already counted."""
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    added = changes.rows.take(_repeated(changes.more)).select(schema.names)
    removed = changes.more < 0
    if not removed.any():
        new = write_file(folder, schema, schema.names, added.to_batches())
        return ([] if new is None else [new]), []
    lost = changes.rows.take(_places(removed))
    plain = _plain_files(table, schema)
    small = sum(file.size for file in plain) <= SMALL_BYTES
    concerned = plain if small else _files_with(folder, plain, schema, FewerRows(schema, lost, -changes.more[removed]))
    check_old_files(folder, plain, sum(file.size for file in concerned))
    fewer = FewerRows(schema, lost, -changes.more[removed])
    written = rewritten(folder, concerned, schema, fewer, added, None)
    if fewer.missing:
        remove_files(folder, written)
        raise NativeWriteError("it has no key, and it lacks a changed row, or that row's file has a deletion vector")
    return written, concerned


class FewerRows:
    """Rows of which some copies have to be removed from a table's files. The copies that are read first are removed."""

    def __init__(self, schema: pa.Schema, rows: pa.Table, less: Numbers) -> None:
        """Keep the rows to remove.

        Args:
            schema: the columns of the table.
            rows: the rows, with the column names of the table.
            less: the number of copies to remove, for each row.
        """
        named = rows.rename_columns([physical_name(schema.field(name)) for name in rows.schema.names])
        self._rows = EqualRows(named)
        self._less = less.copy()
        columns = zip(named.schema.names, map(whole_numbers, named.columns), strict=True)
        self._numbers = {name: numbers for name, numbers in columns if numbers is not None}

    @property
    def missing(self) -> int:
        """Number of copies that have to be removed and were not found yet."""
        return int(self._less.sum())

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay. All other rows count as found."""
        import numpy as np

        places, which = self._rows.places(rows)
        if not len(places):
            return rows
        order = np.argsort(which, kind="stable")
        places, which = places[order], which[order]
        first = np.r_[True, which[1:] != which[:-1]]
        begun = np.maximum.accumulate(np.where(first, np.arange(len(which)), 0))
        removed = np.arange(len(which)) - begun < self._less[which]
        self._less -= np.bincount(which[removed], minlength=len(self._less))
        stays = np.ones(rows.num_rows, np.bool_)
        stays[places[removed]] = False
        return rows.take(_places(stays))

    def may_be_in(self, folder: str, file: TableFile) -> bool:
        """Return True if the limits of a file do not exclude all of the rows."""
        import pyarrow.parquet as pq

        with files_in(folder).read(file.path) as source, pq.ParquetFile(source) as opened:
            return any(
                all(limits_allow(opened, number, name, wanted) for name, wanted in self._numbers.items())
                for number in range(opened.num_row_groups)
            )


def _files_with(folder: str, files: Sequence[TableFile], schema: pa.Schema, fewer: FewerRows) -> list[TableFile]:
    """Return files that have all rows to remove, small files first.

    Raises:
        NativeWriteError: more than MOST_BYTES would be read.
    """
    found: list[TableFile] = []
    size = 0
    for file in sorted(files, key=lambda file: file.size):
        if not fewer.missing:
            break
        if not fewer.may_be_in(folder, file):
            continue
        size += file.size
        if size > MOST_BYTES:
            raise NativeWriteError(f"it has no key, and its changed rows may be in {size >> 20} MB of its files")
        before = fewer.missing
        for rows in rows_of(folder, [file], schema):
            fewer.left(rows)
        found += [file] if fewer.missing < before else []
    return found


def _plain_files(table: DeltaTable, schema: pa.Schema) -> list[TableFile]:
    """Return the files that can be rewritten. Files with a deletion vector cannot.

    The action that removes such a file has to name its deletion vector, which delta-rs does not do.

    Raises:
        NativeWriteError: rows of the table may not be deleted.
    """
    files = files_of(table)
    if not has_changeable_rows(table, files, schema):
        raise NativeWriteError("it has no key, and its files cannot be rewritten")
    marked = with_deletion_vectors(table)
    return [file for file in files if file.path not in marked]


def _steps(rows: pa.RecordBatch) -> Numbers:
    """Return the change in the number of copies of the row of each image: 1, 0 or -1.

    The end of a version of a system-versioned table removes the valid row. Other images of ended versions change
    nothing.
    """
    import numpy as np
    import pyarrow.compute as pc

    change, ended = rows.column(CHANGE), rows.column(HISTORY)
    adds = flags(pc.match_substring_regex(change, pattern="^(insert|update_postimage)$"))
    over = flags(pc.and_kleene(ended, ended.is_valid()))  # FALSE for NULL
    old = flags(pc.match_substring_regex(change, pattern="^update_preimage$"))
    return np.where(over & ~old, 0, np.where(adds, 1, -1))


def _typed(rows: pa.RecordBatch, columns: int, schema: pa.Schema) -> pa.Table:
    """Return the columns of a table with the names and types of the target."""
    import pyarrow as pa

    try:
        return pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(rows.columns[:columns], schema, strict=True)],
            schema=schema,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NativeWriteError(f"its columns have other types: {error}") from error


def _summed(rows: pa.Table, steps: Numbers) -> CountedChanges:
    """Return the sums of the steps of equal rows. Without a negative step, the rows are returned unchanged."""
    import numpy as np

    if not (steps < 0).any():
        return CountedChanges(rows, steps)
    _, first, which = np.unique(row_codes(rows), return_index=True, return_inverse=True)
    more = np.zeros(len(first), np.int64)
    np.add.at(more, which, steps)
    changed = more != 0
    return CountedChanges(rows.take(_numbered(first[changed])), more[changed])


def _places(flags_of_rows: npt.NDArray[np.bool_]) -> pa.Array:
    import numpy as np

    return _numbered(np.flatnonzero(flags_of_rows))


def _repeated(more: Numbers) -> pa.Array:
    """Return the row number of each row, repeated by the number of added copies."""
    import numpy as np

    return _numbered(np.repeat(np.arange(len(more)), np.maximum(more, 0)))


def _numbered(places: Numbers) -> pa.Array:
    from replica.rows.types.arrow_arrays import array_of

    return array_of(places)
