"""Row images as Spark VARIANT values: the plain writer, and the oracle of the kernel that does the same.

In: a layout's columns and the values of one image. Out: VARIANT's `value`, an object of the columns that the image
holds: an absent column has no field, a NULL is the VARIANT null. Its `metadata` is of types/types.py.

The encoding is Spark's (org.apache.spark.types.variant.VariantUtil): integers in their smallest width, DECIMAL in the
width of its declared precision. What VARIANT has no type for is text as SELECT prints it: TIME, and DECIMAL beyond 38
digits. Unsigned integers beyond BIGINT are decimals, a VECTOR is an array of floats, a GEOMETRY the stored bytes.
"""

from __future__ import annotations

import struct
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, assert_never

from replica.protocol.rows.values import EPOCH, format_time
from replica.rows.types.entry import Variant
from replica.rows.types.types import KINDS, width_of
from replica.rows.types.values.numbers import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from replica.rows.tables.plan import ColumnPlan

_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = 0, 1, 2, 3  # basic types: the low two bits of a value's first byte
_NULL, _INT1, _INT2, _INT4, _INT8, _DOUBLE = 0, 3, 4, 5, 6, 7
_DECIMAL4, _DECIMAL8, _DECIMAL16, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _FLOAT, _BINARY, _STRING = range(8, 17)
_MAX_SHORT_STRING = 63
_INTEGERS = ((1, _INT1, "<b"), (2, _INT2, "<h"), (4, _INT4, "<i"), (8, _INT8, "<q"))
_DECIMALS = ((9, _DECIMAL4, 4), (18, _DECIMAL8, 8), (MAX_DECIMAL_PRECISION, _DECIMAL16, 16))
_UNIX_DAY = date(1970, 1, 1)


def variant_object(columns: Sequence[ColumnPlan], image: Mapping[str, Any]) -> bytes:
    """Encode one row image as a VARIANT object; `image` holds the reference decoder's values of the columns present."""
    names = sorted(column.name for column in columns)
    starts, values = {}, b""
    for column in columns:
        if column.name in image:
            starts[names.index(column.name)] = len(values)
            values += variant_value(column, image[column.name])
    large = len(starts) > 255
    id_size, offset_size = width_of(len(names) - 1), width_of(len(values))
    return b"".join(
        (
            bytes((_OBJECT | (large << 4 | id_size - 1 << 2 | offset_size - 1) << 2,)),
            len(starts).to_bytes(4 if large else 1, "little"),
            *(rank.to_bytes(id_size, "little") for rank in sorted(starts)),
            *(starts[rank].to_bytes(offset_size, "little") for rank in sorted(starts)),
            len(values).to_bytes(offset_size, "little"),
            values,
        )
    )


def variant_value(column: ColumnPlan, value: Any) -> bytes:  # noqa: C901  (one case a type)
    """Encode one value of a column as VARIANT does."""
    if value is None:
        return _primitive(_NULL)
    match KINDS[column.kind].variant:
        case Variant.INTEGER | Variant.UNSIGNED:
            encoded = _integer(value)
        case Variant.FLOAT:
            encoded = _primitive(_FLOAT, struct.pack("<f", value))
        case Variant.DOUBLE:
            encoded = _primitive(_DOUBLE, struct.pack("<d", value))
        case Variant.DECIMAL:
            unscaled = int(f"{value:f}".replace(".", ""))  # no arithmetic: it would round to the context's digits
            encoded = _decimal(unscaled, column.precision, column.scale)
        case Variant.TIMESTAMP:
            encoded = _primitive(_TIMESTAMP, _microseconds(value))
        case Variant.TIMESTAMP_NTZ:
            encoded = _primitive(_TIMESTAMP_NTZ, _microseconds(value))
        case Variant.DATE:
            encoded = _primitive(_DATE, struct.pack("<i", (value - _UNIX_DAY).days))
        case Variant.TEXT:
            encoded = _text(format_time(value, column.fsp) if isinstance(value, timedelta) else value)
        case Variant.BINARY:
            stored = struct.pack("<i", value["srid"]) + value["wkb"] if isinstance(value, dict) else value
            encoded = _primitive(_BINARY, len(stored).to_bytes(4, "little") + stored)
        case Variant.FLOATS:
            encoded = _array([_primitive(_FLOAT, struct.pack("<f", item)) for item in value])
        case unknown:
            assert_never(unknown)
    return encoded


def _microseconds(value: datetime) -> bytes:
    return struct.pack("<q", (value.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1))


def _array(items: Sequence[bytes]) -> bytes:
    large = len(items) > 255
    ends = [sum(map(len, items[:i])) for i in range(len(items) + 1)]
    size = width_of(ends[-1])
    head = bytes((_ARRAY | (large << 2 | size - 1) << 2,)) + len(items).to_bytes(4 if large else 1, "little")
    return head + b"".join(end.to_bytes(size, "little") for end in ends) + b"".join(items)


def _primitive(type_info: int, content: bytes = b"") -> bytes:
    return bytes((_PRIMITIVE | type_info << 2,)) + content


def _integer(value: int) -> bytes:
    for size, code, layout in _INTEGERS:
        if -(1 << size * 8 - 1) <= value < 1 << size * 8 - 1:
            return _primitive(code, struct.pack(layout, value))
    return _decimal(value, 20, 0)


def _decimal(unscaled: int, precision: int, scale: int) -> bytes:
    code, size = next((code, size) for digits, code, size in _DECIMALS if precision <= digits)
    return _primitive(code, bytes((scale,)) + unscaled.to_bytes(size, "little", signed=True))


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _MAX_SHORT_STRING:
        return bytes((_SHORT_STRING | len(data) << 2,)) + data
    return _primitive(_STRING, len(data).to_bytes(4, "little") + data)
