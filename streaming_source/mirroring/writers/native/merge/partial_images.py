"""Changes of a table whose row images lack columns (`binlog_row_image` MINIMAL, NOBLOB, FULL_NODUP).

The task that decodes the rows calls `key_events`, which returns the events of each key. Each column has the value of
the newest image, up to the event, that has the column. If no image of the micro-batch has it, the target's value stays.
An INSERT that leaves a column out gives it its default, which the driver knows (`OmittedColumns`). Unknown values are
refused. Spark then writes the table, and refuses them for the same reason. The rules are those of
`streaming_source/sinks/upserts.py` and of `apply/table_applier.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.mirroring.batch.latest_rows import CHANGE, HISTORY, key_codes, numbers
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.schema import target_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

ABSENT: Final = "_absent"
_OF_IMAGES: Final = (CHANGE, HISTORY, ABSENT)
"""Columns of flat rows that describe the image, after those of the table."""
KEPT: Final = "kept_"
"""Prefix of the columns that mark rows which keep the value of the target."""
MOST_CELLS: Final = 8 << 20
"""Most values of changes in one task. The task holds two or three 8-byte row numbers for each value: at most 200 MB."""
_NOWHERE: Final = -1
_DEFAULT: Final = -2


class OmittedColumns(NamedTuple):
    """Known values of columns that images lack; each field has one entry for each column of the table.

    Attributes:
        names: the columns.
        stored: whether every change of the column's value is logged, which is false for generated columns.
        values: an array with the one value that an INSERT without the column gives it; None if it is unknown.
    """

    names: tuple[str, ...]
    stored: tuple[bool, ...]
    values: tuple[pa.Array | None, ...]


def key_events(mode: str, rows: pa.RecordBatch, keys: Sequence[str], left_out: OmittedColumns) -> pa.RecordBatch:
    """Return the events of keys in flat rows that may lack columns.

    Args:
        mode: the mode of the target. A `history` takes all events, `current` and `soft_delete` the last one of each
            key.
        rows: all changes of a table in the order of the stream: its columns by their numbers, then `_change_type`,
            `_history` and `_absent`, then any others.
        keys: the key columns, by their numbers.
        left_out: the known values of columns.

    Returns:
        One row for each event, those of a key in their order. It has the columns of the table, a flag for deleted keys
        (named by the number of columns), and the other columns of `rows`. For each column that some event lacks,
        `kept_` with its number follows: whether the event keeps the target's value. Deleted rows keep values only in
        `soft_delete`.

    Raises:
        NativeWriteError: a value is unknown.
    """
    import numpy as np

    columns = len(left_out.names)
    if rows.column(HISTORY).true_count:
        raise NativeWriteError("images of its rows lack columns, and it is system-versioned")
    images, places = _known_places(rows, left_out)
    found = [_values(rows, number, places[:, number], left_out) for number in map(int, keys)]
    if any((places[:, number] == _NOWHERE).any() for number in map(int, keys)):
        raise NativeWriteError("images of its rows lack a column of the key")
    codes = key_codes(numbered_arrays(found), [str(number) for number in range(len(found))])
    started = images.after[codes[images.after] != codes[images.after - 1]]
    if (places[started] == _NOWHERE).any():
        raise NativeWriteError("a row changed its key, and its images lack columns")
    happens = np.ones(rows.num_rows, np.bool_)
    happens[images.after - 1] = False  # a before image is an event only if the key changes
    happens[started - 1] = True
    events = np.flatnonzero(happens)
    events = events[np.argsort(codes[events], kind="stable")]
    first = np.r_[True, codes[events][1:] != codes[events][:-1]]
    chosen = np.arange(len(events)) if mode == target_modes.HISTORY else np.flatnonzero(np.r_[first[1:], True])
    begun = np.maximum.accumulate(np.where(first, np.arange(len(events)), 0))
    counted = ~images.deleted[events[chosen]] | (mode == target_modes.SOFT_DELETE)
    arrays: list[pa.Array] = []
    kept: list[Flags] = []
    for number in range(columns):
        newest = _newest_places(begun, places[events, number])[chosen]
        arrays.append(_values(rows, number, newest, left_out))
        kept.append((newest == _NOWHERE) & counted)
    return _result(rows, events[chosen], arrays, images.deleted, kept)


def whole_rows(rows: pa.RecordBatch, left_out: OmittedColumns) -> pa.RecordBatch:
    """Return complete flat rows of a table without a key: after images take missing values from their before images.

    Args:
        rows: its changes, as `key_events` takes them.
        left_out: the known values of columns.

    Raises:
        NativeWriteError: a value is unknown.
    """
    _, places = _known_places(rows, left_out)
    unknown = places == _NOWHERE
    if unknown.any():
        raise NativeWriteError(f"it has no key, and images of its rows lack {_first(unknown, left_out)}")
    columns = len(left_out.names)
    arrays = [_values(rows, number, places[:, number], left_out) for number in range(columns)]
    return numbered_arrays([*arrays, *rows.columns[columns:]]).rename_columns(rows.schema.names)


def _known_places(rows: pa.RecordBatch, left_out: OmittedColumns) -> tuple[_Images, Places]:
    """Return the kinds of images, and for each row the row that has the value of each column.

    Raises:
        NativeWriteError: the rows are too many, or have unknown columns.
    """
    if rows.num_rows * len(left_out.names) > MOST_CELLS:
        raise NativeWriteError("images of its rows lack columns, and they are too many for one task")
    images = _Images.of(rows.column(CHANGE))
    return images, _places(rows, images, left_out)


class _Images(NamedTuple):
    """Kinds of images.

    Attributes:
        after: row numbers of after images, each directly after its before image.
        inserted: row numbers of inserted rows.
        deleted: whether the image, if it is an event, deletes its key.
    """

    after: Places
    inserted: Places
    deleted: Flags

    @classmethod
    def of(cls, change: pa.Array) -> _Images:
        import numpy as np

        encoded = change.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        kinds = numbers(encoded.indices)

        def are(name: str) -> Flags:
            return kinds == (names.index(name) if name in names else _NOWHERE)

        after, before = np.flatnonzero(are("update_postimage")), np.flatnonzero(are("update_preimage"))
        if not np.array_equal(after - 1, before):
            raise NativeWriteError("a before image is not followed by its after image")
        return cls(after, np.flatnonzero(are("insert")), are("delete") | are("update_preimage"))


def _places(rows: pa.RecordBatch, images: _Images, left_out: OmittedColumns) -> Places:
    """Return the row that has the value of each column of each row: the row itself, its before image, or none."""
    import numpy as np

    present = _present(rows.column(ABSENT), left_out.names)
    own = np.arange(rows.num_rows)[:, None]
    places = np.where(present, own, _NOWHERE)
    after = images.after
    before = np.where(present[after - 1], own[after - 1], _NOWHERE)
    places[after] = np.where(present[after], own[after], before)
    unknown = (places[after] == _NOWHERE) & ~np.array(left_out.stored, np.bool_)
    if unknown.any():
        raise NativeWriteError(f"images of updates leave out {_first(unknown, left_out)}")
    inserted = images.inserted
    lacking = places[inserted] == _NOWHERE
    undefined = lacking & np.array([value is None for value in left_out.values], np.bool_)
    if undefined.any():
        raise NativeWriteError(f"images of inserts leave out {_first(undefined, left_out)}")
    places[inserted] = np.where(lacking, _DEFAULT, places[inserted])
    return places


def _present(absent: pa.Array, names: Sequence[str]) -> Flags:
    """Return which columns each row has: shape (rows, columns), bool."""
    import numpy as np
    import pyarrow.compute as pc

    present = np.ones((len(absent), len(names)), np.bool_)
    listed = pc.list_flatten(absent).dictionary_encode()
    known = {name: number for number, name in enumerate(names)}
    named = listed.dictionary.to_pylist()
    if not known.keys() >= set(named):
        raise NativeWriteError("images of its rows lack a column that its definition does not have")
    columns = np.array([known[name] for name in named], np.int64)[numbers(listed.indices)]
    lengths = numbers(pc.fill_null(pc.list_value_length(absent), 0))
    present[np.repeat(np.arange(len(absent)), lengths), columns] = False
    return present


def _newest_places(begun: Places, places: Places) -> Places:
    """Return, for each event, the row with the newest value of a column, up to this event of the key.

    Args:
        begun: for each event, the number of the first event of its key; the events of a key are adjacent.
        places: for each event, the row with its own value.
    """
    import numpy as np

    last = np.maximum.accumulate(np.where(places != _NOWHERE, np.arange(len(places)), -1))
    return np.where(last >= begun, places[last], _NOWHERE)


def _values(rows: pa.RecordBatch, number: int, places: Places, left_out: OmittedColumns) -> pa.Array:
    """Return the values of a column at row numbers; NULL for _NOWHERE."""
    import numpy as np
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of

    column = rows.column(number)
    default = left_out.values[number]
    if default is not None and (places == _DEFAULT).any():
        column = pa.concat_arrays([column, default.cast(column.type)])
        places = np.where(places == _DEFAULT, len(column) - 1, places)
    return column.take(array_of(np.maximum(places, 0), places < 0))


def _result(
    rows: pa.RecordBatch, events: Places, arrays: Sequence[pa.Array], deleted: Flags, kept: Sequence[Flags]
) -> pa.RecordBatch:
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of

    columns = len(arrays)
    others = rows.schema.names[columns + len(_OF_IMAGES) :]
    some = [number for number in range(columns) if kept[number].any()]
    names = [*map(str, range(columns + 1)), *others, *(f"{KEPT}{number}" for number in some)]
    more = [*rows.select(others).take(array_of(events)).columns, *(array_of(kept[number]) for number in some)]
    return pa.RecordBatch.from_arrays([*arrays, array_of(deleted[events]), *more], names=names)


def numbered_arrays(arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch whose columns are named by their numbers."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(list(arrays), names=[str(number) for number in range(len(arrays))])


def _first(flags: Flags, left_out: OmittedColumns) -> str:
    return left_out.names[int(flags.any(axis=0).argmax())]
