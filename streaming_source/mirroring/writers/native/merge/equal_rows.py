"""Search for rows that equal given rows bit by bit: `EqualRows` finds them in record batches.

NULL equals NULL. 0.0 and -0.0 are two values. All NaNs are one value, because Spark writes them with the same bits. A
batch is filtered column by column, because most rows of a table differ from the wanted rows in the first columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming_source.mirroring.batch.latest_rows import key_codes
from streaming_source.mirroring.writers.native.data_files import NativeWriteError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]

_NOWHERE: Final = -1


def row_codes(rows: pa.Table) -> Places:
    """Return a number for each row that is the same for equal rows.

    Returns:
        Shape (rows,), int64.

    Raises:
        NativeWriteError: a column has a type whose values are not compared.
    """
    import pyarrow as pa

    exact = _exact(rows)
    arrays = [combined(column) for column in exact.columns]
    return key_codes(pa.RecordBatch.from_arrays(arrays, names=exact.schema.names), exact.schema.names)


class EqualRows:
    """Rows to search for."""

    def __init__(self, wanted: pa.Table) -> None:
        """Keep the rows to search for.

        Raises:
            NativeWriteError: a column has a type whose values are not compared.
        """
        self._wanted = _exact(wanted)

    def places(self, batch: pa.RecordBatch) -> tuple[Places, Places]:
        """Return the places of rows in `batch` that equal a wanted row.

        If several wanted rows are equal, one of them is taken.

        Args:
            batch: rows with the same columns, and maybe others. Types are cast to those of the wanted rows.

        Returns:
            Row numbers in `batch`, ascending, and for each of them the row number of the wanted row. Both int64.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        names = self._wanted.schema.names
        left = _exact(pa.Table.from_batches([batch.select(names)])).cast(self._wanted.schema)
        places = np.arange(batch.num_rows)
        for name in names:
            equal = pc.is_in(left.column(name), value_set=self._wanted.column(name))
            left, places = left.filter(equal), places[flags(combined(equal))]
            if not len(places):
                return places, places
        codes = row_codes(pa.concat_tables([left, self._wanted]))
        numbered = np.full(codes.max(initial=0) + 1, _NOWHERE)
        numbered[codes[len(places) :]] = np.arange(self._wanted.num_rows)
        found = numbered[codes[: len(places)]]
        return places[found >= 0], found[found >= 0]


def _exact(rows: pa.Table) -> pa.Table:
    """Return rows with values for which Arrow's comparison is exact."""
    import pyarrow as pa

    arrays = [_comparable(combined(column)) for column in rows.columns]
    return pa.Table.from_arrays(arrays, names=rows.schema.names)


def _comparable(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_floating(values.type):
        return _bits(values)
    if pa.types.is_list(values.type) and pa.types.is_float32(values.type.value_type):
        return _as_bytes(values)
    if pa.types.is_nested(values.type):
        raise NativeWriteError(f"it has no key, and values of its type {values.type} cannot be compared")
    return values


def _bits(values: pa.Array) -> pa.Array:
    """Return FLOAT or DOUBLE values as integers of the same bits; all NaNs get one form."""
    import numpy as np

    from replica.rows.types.arrow_arrays import array_of

    width = values.type.bit_width // 8
    numbers = _numbers(values, np.dtype(f"f{width}")).copy()
    numbers[np.isnan(numbers)] = np.nan
    return array_of(numbers.view(f"i{width}"), ~flags(values.is_valid()))


def _as_bytes(values: pa.Array) -> pa.Array:
    """Return lists of FLOAT (VECTOR) as bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from replica.rows.types.arrow_arrays import validity

    floats = values.flatten()
    if floats.null_count:
        raise NativeWriteError("it has no key, and a VECTOR that lacks some of its values")
    valid = flags(values.is_valid())
    lengths = np.zeros(len(values), np.int64)
    lengths[valid] = _numbers(pc.list_value_length(values).filter(values.is_valid()), np.dtype("i4"))
    offsets = np.concatenate(([0], np.cumsum(lengths) * np.dtype("f4").itemsize)).astype(np.int32)
    buffers = [validity(valid), pa.py_buffer(offsets), _bits(floats).buffers()[1]]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _numbers(values: pa.Array, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return numbers as a view of Arrow's memory. The values at NULLs are undefined."""
    import numpy as np

    numbers = np.frombuffer(values.buffers()[1] or b"", kind)
    return numbers[values.offset : values.offset + len(values)]


def combined(values: pa.ChunkedArray) -> pa.Array:
    """Return values as one array. Arrow's own conversion of a column without chunks imports pandas."""
    import pyarrow as pa

    return values.combine_chunks() if values.num_chunks else pa.nulls(0, values.type)


def flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return truth values without NULL. Arrow's own conversion to numpy imports pandas."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    return _numbers(pc.cast(values, pa.uint8()), np.dtype("u1")) != 0
