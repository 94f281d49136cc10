"""Key bytes: a canonical form of a key, made from the values in row images. kernel_keys.py is the compiled form.

Equal key values give equal bytes. `KeyPart.ordered` marks the parts that the server orders as memcmp orders the bytes.
Snapshot rows and stream rows give the same bytes, even if the stream has old temporal formats.

The parts follow one another. Numbers and times are big-endian. A value of variable length has its zero bytes escaped as
00 FF and ends with 00 00. So no value's bytes are a prefix of another's, and shorter values sort first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import SchemaError
from replica.protocol.rows.table_map import value_extent
from replica.rows.types.kinds import KeyForm, KeyRecord
from replica.rows.types.types import type_named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.native.record import Records
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.types.types import Declared

_UNORDERED: Final = frozenset({KeyForm.TEXT})
_SIZES: Final = {KeyForm.BYTES: 0, KeyForm.TEXT: 0, KeyForm.UUID: 16, KeyForm.OLD_DATETIME: 5, KeyForm.OLD_TIME: 3}
_DATETIME_OFFSET: Final = 0x8000000000
_TIME_OFFSET: Final = 0x800000

READ_AGAIN: Final = "Re-snapshot the table (resnapshot), or start with a new checkpoint."
"""Hint of errors about a table whose key changed after its rows were delivered."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a key in a table map, with the conversion of its values to key bytes.

    Attributes:
        column: The number of the column in the row image.
        form: The conversion.
        width: The bytes of a value, or minus the bytes of its length prefix.
        size: The bytes of the part, 0 if they depend on the value.
        ordered: True if the server orders the column as its key bytes sort.
    """

    column: int
    form: KeyForm
    width: int
    size: int
    ordered: bool

    def bytes_of(self, value: bytes) -> bytes:
        """Return the key bytes of a value from a row image, given without its length prefix."""
        return _FORMS[self.form](value, self.size)


def key_part(number: int, column: ColumnDef, declared: Declared) -> KeyPart:
    """Return the key part of column `number` of a table map; `declared` is the catalog's definition of the column.

    Raises:
        SchemaError: The types of the two differ, or the type cannot be a part of a key.
    """
    entry = type_named(column.type, declared.data_type)
    if entry is None or entry.key is None:
        raise SchemaError(
            f"Column {declared.name} is {declared.column_type}, but has type {column.type} in a row image: "
            "it cannot be read as a part of the key.",
            hint="The table was changed after its key was chosen: read its definition again.",
        )
    form = KeyForm.UNSIGNED if entry.key == KeyForm.SIGNED and declared.unsigned else entry.key
    width, prefix = value_extent(column)
    size = _SIZES.get(form, width or column.length)
    return KeyPart(number, form, width or -prefix, size, is_ordered(form, declared))


def is_ordered(form: KeyForm, declared: Declared) -> bool:
    """Return True if the server orders the column as its key bytes sort."""
    if form == KeyForm.UUID:  # tables from before MDEV-29959 are `uuid /* old */`, and order all versions alike
        return declared.column_type.lower() == "uuid"
    if declared.column_type.lower().startswith("year(2)"):  # stored as years, compared by two digits
        return False
    return form not in _UNORDERED


def key_bytes_of(parts: Sequence[KeyPart], values: Sequence[bytes]) -> bytes:
    """Return the key bytes of values in key order, each without its length prefix."""
    return b"".join(part.bytes_of(value) for part, value in zip(parts, values, strict=True))


def key_records(parts: Sequence[KeyPart]) -> Records:
    """Return the KeyRecords of a key for kernels, in key order."""
    records = np.zeros(len(parts), KeyRecord.dtype)
    for record, part in zip(records, parts, strict=True):
        record["column"], record["form"] = part.column, part.form
        record["width"], record["size"] = part.width, part.size
    return records


def _stored_uuid(value: bytes) -> bytes:
    """Return a UUID in the byte order that tables store and sort: the node first, if version and variant mark a time.

    Source: memory_to_record and mem_need_swap in plugin/type_uuid/sql_type_uuid.h.
    """
    if 0 < value[6] < 0x60 and value[8] & 0x80:
        return value[10:] + value[8:10] + value[6:8] + value[4:6] + value[:4]
    return value


def _new_datetime(packed: int) -> bytes:
    """Return YYYYMMDDhhmmss in the format of DATETIME2."""
    day, clock = divmod(packed, 1_000_000)
    months = day // 10000 * 13 + day // 100 % 100
    bits = months << 22 | day % 100 << 17 | clock // 10000 << 12 | clock // 100 % 100 << 6 | clock % 100
    return (bits + _DATETIME_OFFSET & 0xFFFFFFFFFF).to_bytes(5, "big")


def _new_time(packed: int) -> bytes:
    """Return a signed hhmmss in the format of TIME2."""
    whole = abs(packed)
    bits = whole // 10000 << 12 | whole // 100 % 100 << 6 | whole % 100
    return ((-bits if packed < 0 else bits) + _TIME_OFFSET & 0xFFFFFF).to_bytes(3, "big")


_FORMS: Final[dict[KeyForm, Callable[[bytes, int], bytes]]] = {
    KeyForm.SIGNED: lambda value, size: (int.from_bytes(value, "little") ^ 1 << 8 * size - 1).to_bytes(size, "big"),
    KeyForm.UNSIGNED: lambda value, _: value[::-1],
    KeyForm.STORED: lambda value, _: value,
    KeyForm.PADDED: lambda value, size: value[:size].ljust(size, b"\0"),
    KeyForm.UUID: lambda value, size: _stored_uuid(value[:size].ljust(size, b"\0")),
    KeyForm.BYTES: lambda value, _: value.replace(b"\0", b"\0\xff") + b"\0\0",
    KeyForm.TEXT: lambda value, _: value.replace(b"\0", b"\0\xff") + b"\0\0",
    KeyForm.OLD_DATETIME: lambda value, _: _new_datetime(int.from_bytes(value, "little")),
    KeyForm.OLD_TIME: lambda value, _: _new_time(int.from_bytes(value, "little", signed=True)),
}
