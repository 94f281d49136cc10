"""TIME values as text, as SELECT prints them: Delta has no INTERVAL type, so targets hold text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

INTERVAL: Final = "INTERVAL DAY TO SECOND"
_DIGITS: Final = re.compile(r"time\s*\((\d)\)", re.IGNORECASE)
_SECOND: Final = 1_000_000
_HOUR: Final = 3600
_POWERS: Final = (100_000, 10_000, 1_000, 100, 10, 1)


def time_digits(declared: str) -> int:
    """Return the number of fractional digits of a TIME, from its declaration, such as `time(3)`."""
    found = _DIGITS.match(declared)
    return int(found[1]) if found else 0


def time_texts(values: pa.Array, digits: int) -> pa.Array:
    """Return TIME values as text.

    Args:
        values: durations in microseconds, up to 838:59:59.999999 in either direction.
        digits: the number of fractional digits.
    """
    import numpy as np
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import validity

    count = len(values)
    known = np.ones(count, np.bool_)
    if values.null_count:
        bits = np.frombuffer(values.is_valid().buffers()[1], np.uint8)
        known = np.unpackbits(bits, count=count, bitorder="little").astype(np.bool_)
    micros = np.where(known, np.frombuffer(values.buffers()[1], np.int64, count, values.offset * 8), 0)
    seconds, fraction = np.divmod(np.abs(micros), _SECOND)
    hours, rest = np.divmod(seconds, _HOUR)
    colon, point = (np.full(count, ord(mark)) for mark in ":.")
    parts = [
        np.full(count, ord("-")),
        *_digits(hours, 3),
        colon,
        *_digits(rest // 60, 2),
        colon,
        *_digits(rest % 60, 2),
    ]
    if digits:
        parts += [point, *_digits(fraction, 6)[:digits]]
    text = np.stack(parts, axis=1).astype(np.uint8)
    written = np.repeat(known[:, None], text.shape[1], axis=1)
    written[:, 0] &= micros < 0
    written[:, 1] &= hours >= 100
    offsets = np.concatenate(([0], np.cumsum(written.sum(axis=1)))).astype(np.int32)
    data = pa.py_buffer(text[written].tobytes())
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), data, validity(known))


def _digits(numbers: Any, count: int) -> list[Any]:
    """Return the last `count` decimal digits of numbers as characters, one array for each digit."""
    return [numbers // power % 10 + ord("0") for power in _POWERS[-count:]]
