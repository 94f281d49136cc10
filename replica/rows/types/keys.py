"""Key bytes: one canonical form of a key, made of the values in row images.

In: the columns of a key as a table map has them, and the bytes of their values. Out: bytes that are equal where the
keys are. Where the server orders a key as memcmp orders these bytes, `KeyPart.ordered` says so of each part. Rows that
were read from the table and rows of the stream give the same bytes, also where the stream has old temporal formats.

The parts stand one behind the other. Numbers and times come most significant byte first. A value of any length has its
zero bytes escaped as 00 FF and ends with 00 00, so that no value's bytes begin another's, and shorter ones sort first.

This is the plain form; kernel_keys.py is the compiled one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import SchemaError
from replica.protocol.rows.column_def import value_extent
from replica.rows.types.kinds import KeyForm
from replica.rows.types.plan_record import KeyRecord
from replica.rows.types.types import type_named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.native.record import Records
    from replica.protocol.rows.column_def import ColumnDef
    from replica.rows.types.types import Declared

_UNORDERED: Final = frozenset({KeyForm.TEXT})
_SIZES: Final = {KeyForm.BYTES: 0, KeyForm.TEXT: 0, KeyForm.UUID: 16, KeyForm.OLD_DATETIME: 5, KeyForm.OLD_TIME: 3}
_DATETIME_OFFSET: Final = 0x8000000000
_TIME_OFFSET: Final = 0x800000

READ_AGAIN: Final = "Have the table read again (snapshotAgain), or start with a new checkpoint."
"""The way out where a key is another one than that by which rows of its table were delivered."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a key as a table map has it: what makes its part of the key bytes.

    `column` is its number in the row image, `width` the bytes of a value, or minus those of the length before it,
    `size` the bytes of its part, 0 where they depend on the value.
    """

    column: int
    form: KeyForm
    width: int
    size: int
    ordered: bool

    def bytes_of(self, value: bytes) -> bytes:
        """Return the part of the key that a value of a row image becomes, given without the length before it."""
        return _FORMS[self.form](value, self.size)


def key_part(number: int, column: ColumnDef, declared: Declared) -> KeyPart:
    """Return the part of a key that column `number` of a table map is; `declared` is the catalog's word on it.

    SchemaError if the two are not of one type, or no key can be read by it.
    """
    entry = type_named(column.type, declared.data_type)
    if entry is None or entry.key is None:
        raise SchemaError(
            f"Column {declared.name} is {declared.column_type}, and of type {column.type} in a row image: "
            "no key is read by it.",
            hint="The table was changed after its key was chosen: read its definition again.",
        )
    form = KeyForm.UNSIGNED if entry.key == KeyForm.SIGNED and declared.unsigned else entry.key
    width, prefix = value_extent(column)
    size = _SIZES.get(form, width or column.length)
    return KeyPart(number, form, width or -prefix, size, is_ordered(form, declared))


def is_ordered(form: KeyForm, declared: Declared) -> bool:
    """Tell whether the server orders such a column as its part of a key's bytes sorts."""
    if form == KeyForm.UUID:  # tables of servers before MDEV-29959 say `uuid /* old */`, and order all versions alike
        return declared.column_type.lower() == "uuid"
    if declared.column_type.lower().startswith("year(2)"):  # stored as years, compared by two digits
        return False
    return form not in _UNORDERED


def key_bytes_of(parts: Sequence[KeyPart], values: Sequence[bytes]) -> bytes:
    """Return the key bytes of values in key order, each without the length before it."""
    return b"".join(part.bytes_of(value) for part, value in zip(parts, values, strict=True))


def key_records(parts: Sequence[KeyPart]) -> Records:
    """Return the parts of a key as kernels read them, in key order."""
    records = np.zeros(len(parts), KeyRecord.dtype)
    for record, part in zip(records, parts, strict=True):
        record["column"], record["form"] = part.column, part.form
        record["width"], record["size"] = part.width, part.size
    return records


def _stored_uuid(value: bytes) -> bytes:
    """Return a UUID as tables store and order it: the node first, where version and variant tell of a time.

    Source: memory_to_record and mem_need_swap in plugin/type_uuid/sql_type_uuid.h.
    """
    if 0 < value[6] < 0x60 and value[8] & 0x80:
        return value[10:] + value[8:10] + value[6:8] + value[4:6] + value[:4]
    return value


def _new_datetime(packed: int) -> bytes:
    """Return YYYYMMDDhhmmss as DATETIME2 stores it."""
    day, clock = divmod(packed, 1_000_000)
    months = day // 10000 * 13 + day // 100 % 100
    bits = months << 22 | day % 100 << 17 | clock // 10000 << 12 | clock // 100 % 100 << 6 | clock % 100
    return (bits + _DATETIME_OFFSET & 0xFFFFFFFFFF).to_bytes(5, "big")


def _new_time(packed: int) -> bytes:
    """Return hhmmss with its sign as TIME2 stores it."""
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
