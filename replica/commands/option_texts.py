"""Values of options as people write them: 67108864 bytes is 64m, 3600.0 seconds is 1h."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

if TYPE_CHECKING:
    from replica.config import ReplicaConfig

_UNITS = ((30, "g"), (20, "m"), (10, "k"), (0, ""))


def default(kind: type[ReplicaConfig], name: str) -> str:
    """The default of an option as people write it; empty for none, and for what is drawn anew each time."""
    info = kind.model_fields[name]
    if info.is_required() or info.default_factory is not None or info.default in (None, ""):
        return ""
    return written(name, info.default)


def written(name: str, value: object) -> str:  # noqa: PLR0911  (one a kind of value)
    """A value as people write it; secrets are masked."""
    match value:
        case None:
            return ""
        case SecretStr():
            return "********"
        case bool():
            return str(value).lower()
        case int() | float() if name.endswith("_s"):
            return _time(value)
        case int() if name.endswith("_bytes"):
            return next(f"{value >> shift}{unit}" for shift, unit in _UNITS if not value & ((1 << shift) - 1))
        case (str() as host, int() as port):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _time(seconds: float) -> str:
    for unit, letter in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g}{letter}"
    return f"{seconds:g}s"
