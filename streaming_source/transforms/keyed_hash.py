"""The hashes of columns, made by Spark's Python workers on whole Arrow batches.

`hashed` takes rows whose images are structs, with the columns to hash as text. It returns the same rows with the
HMAC-SHA-256 of each text in its place, and NULL for NULL. The workers get the key in the pickled state of the function.
A SQL expression would show it in plans, in the UI and in the event log. Whole rows pass through the function. With a
function of single columns, Spark would spill waiting rows to disk when memory is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from streaming_source.transforms.hash_key import HashKey

SIDES = ("before", "after")


def hashed(rows: DataFrame, names: Iterable[str], key: HashKey, *, sides: Iterable[str] = SIDES) -> DataFrame:
    """Return rows with the hash of these columns in the images in place of their text."""
    work = _KeyedHash(key, frozenset(names), tuple(sides))

    def keyed_hash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(work.of_batch, batches)

    return rows.mapInArrow(keyed_hash, rows.schema)


class _KeyedHash:
    """The function on one batch."""

    __slots__ = ("_key", "_names", "_sides")

    def __init__(self, key: HashKey, names: frozenset[str], sides: tuple[str, ...]) -> None:
        self._key = key
        self._names = names
        self._sides = sides

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = [
            self._of_image(column) if name in self._sides else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _of_image(self, image: pa.StructArray) -> pa.StructArray:
        import pyarrow as pa

        fields = list(image.type)
        values = [
            self._of_values(values) if field.name in self._names else values
            for field, values in zip(fields, image.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(values, fields=fields, mask=image.is_null())

    def _of_values(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        from replica.rows.types.arrow_arrays import array_of_values

        # As bytes, because a value of VARBINARY need not be UTF-8.
        raw = values.cast(pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary())
        made = [None if value is None else self._key.hash(value) for value in raw.to_pylist()]
        return array_of_values(made, values.type)
