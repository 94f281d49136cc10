"""The hashes of columns, made by Spark's Python workers on whole Arrow batches.

`hashed` takes rows whose images are structs, with the columns to hash as text. It returns the same rows with the
HMAC-SHA-256 of each text in its place, and NULL for NULL. The workers get the key in the pickled state of the function.
A SQL expression would show the key in plans, in the UI and in the event log. Whole rows pass through the function. With
a function of single columns, Spark would spill waiting rows to disk when memory is short.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from replica.options.file import exposed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

SIDES = ("before", "after")


def hashed(rows: DataFrame, names: Iterable[str], key: HashKey, *, sides: Iterable[str] = SIDES) -> DataFrame:
    """Return rows with the hash of these columns in the images in place of their text."""
    work = _KeyedHash(key, frozenset(names), tuple(sides))

    def keyed_hash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(work.of_batch, batches)

    return rows.mapInArrow(keyed_hash, rows.schema)


class _KeyedHash:
    """Function that hashes one batch."""

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


# `read_hash_key` takes the path of the option `hashKeyFile` and returns a `HashKey`. All bytes of the file count,
# except white space at its end, which editors add. The fingerprint is kept beside the targets, so that another key is
# noticed; it reveals nothing about the key. A file that cannot be read, is too short to be a key, or too long, is a
# ConfigError.


FEWEST_BYTES: Final = 32
"""Least bytes of a key: the length of a SHA-256. A shorter key is easier to guess than the hash."""
MOST_BYTES: Final = 4096
"""Most bytes of a key. A longer file is probably the wrong one."""
_LABEL: Final = b"mariadb mirror: fingerprint of the key"
_BLOCK: Final = 64
_PADS: Final = (0x36, 0x5C)  # RFC 2104
_DIGITS: Final = 32
_HINT: Final = "Make a key: `openssl rand -hex 32 > FILE`, and keep it: with another key, values get other hashes."

_log = logging.getLogger(__name__)


class HashKey:
    """Key of hashes, which never appears as text.

    Both SHA-256 states of HMAC have already processed the key. The module `hmac` would start them again for each value,
    and take twice as long.
    """

    __slots__ = ("_bytes", "_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        self._bytes = key
        block = (key if len(key) <= _BLOCK else hashlib.sha256(key).digest()).ljust(_BLOCK, b"\0")
        self._inner, self._outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in _PADS)

    def __reduce__(self) -> tuple[type[HashKey], tuple[bytes]]:
        return HashKey, (self._bytes,)  # a SHA-256 state cannot be pickled

    def __repr__(self) -> str:
        return "HashKey(…)"

    @property
    def fingerprint(self) -> str:
        """Identity of the key: equal for equal keys. It reveals nothing about the key."""
        return self.hash(_LABEL)[:_DIGITS]

    def hash(self, value: bytes) -> str:
        """Return the HMAC-SHA-256 of `value` as 64 hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(value)
        outer.update(inner.digest())
        return outer.hexdigest()


def read_hash_key(path: str | Path) -> HashKey:
    """Return the key of a file. Log a warning if every user of the machine can read the file.

    Raises:
        ConfigError: the file cannot be read, or is not a key.
    """
    try:
        with Path(path).open("rb") as file:
            key = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"hashKeyFile {path} cannot be read: {error.strerror}.", hint=_HINT) from None
    if len(key) > MOST_BYTES:
        raise ConfigError(f"hashKeyFile {path} has more than {MOST_BYTES} bytes: it is not a key.", hint=_HINT)
    key = key.rstrip()
    if len(key) < FEWEST_BYTES:
        raise ConfigError(
            f"hashKeyFile {path} has {len(key)} bytes, but a key has at least {FEWEST_BYTES}.", hint=_HINT
        )
    for warning in exposed([Path(path)]):
        _log.warning("%s", warning)
    return HashKey(key)


# `hash_text` takes a Spark column, its type, and the declared type in the table. It returns an expression whose bytes
# are hashed. TIMESTAMP is in UTC. Fractions of a second have no trailing zeros, so that DATETIME and DATETIME(3) are
# equal. Bytes are hashed unchanged. Types whose values have several texts, such as FLOAT, are not hashed.


HASHED: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "date", "datetime", "timestamp"}
    | {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid", "inet4", "inet6"}
    | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
"""Declared types whose values can be hashed."""
_PLAIN_SCALE: Final = 6
"""Most digits after the point for which Spark prints small decimals without an exponent."""


def hash_text(value: Column, kind: str, declared: str) -> Column:
    """Return the text of a value; NULL for NULL."""
    from pyspark.sql import functions as f

    if declared == "year":
        return f.lpad(value.cast("string"), 4, "0")
    if kind == "TIMESTAMP":
        # Not by a cast to text, which depends on the session's time zone.
        epoch = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return f.timestamp_add("MICROSECOND", f.unix_micros(value), epoch).cast("string")
    if kind.startswith("DECIMAL"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        if scale > _PLAIN_SCALE:
            return f.replace(f.format_number(value, scale), f.lit(","), f.lit(""))
    return value.cast("string")
