"""Values as JSON, one object a line."""

from __future__ import annotations

import json


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_line(value: object) -> bytes:
    return as_json(value).encode("utf-8", "backslashreplace") + b"\n"
