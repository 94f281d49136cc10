"""Rows of a control table for tests of what people see of it."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from streaming_source.mirroring.control.control_table import CURRENT, ControlRow

NOW: Final = dt.datetime(2026, 12, 2, 9, 0, tzinfo=dt.UTC)
HOSTILE: Final = "<img src=x onerror=alert(1)>'\"&\u202egnp.exe\x1b[31m</style><script>alert(2)</script>"
"""Text of a server that would be a tag, leave its attribute, or turn the text after it around."""


def control_row(table: str, **given: Any) -> ControlRow:
    values: dict[str, Any] = {
        "mirror": "m",
        "source_database": "shop",
        "source_table": table,
        "target": f"`lake`.`{table}`",
        "mode": "current",
        "state": CURRENT,
        "keys": ("id",),
        "position": "0-1-7",
        "batch": 1,
        "rows": 10,
        "committed_at": NOW,
        "lag": 1.5,
        "updated_at": NOW,
        "error": None,
        "definition": "",
        "defined_at": "",
        "again": None,
        "rules": None,
        **given,
    }
    return ControlRow(**values)
