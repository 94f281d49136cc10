"""Times, durations and sizes as text for people."""

from __future__ import annotations

import time
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def span(seconds: float) -> str:
    """Return a duration as text: 0.4 ms, 12 s, 5 min 3 s, 7 h 10 min, 3 d 4 h."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def size(count: float) -> str:
    """Return a size as text, in powers of 1024: 512 B, 1.5 MiB."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} {_UNITS[-1]}"
