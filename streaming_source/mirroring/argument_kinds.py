"""The kinds of a mirror's arguments: a file of TOML, and a call too, can give a number where a name has to be.

In: the arguments, by the names of `mirror()`. Out: nothing, or those whose kind is close as what they have to be.
Refused, with a ConfigError that names the argument: another kind, options that are written twice or like an argument.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, Final

from replica.errors import ConfigError
from streaming_source.options.source_options import OPTIONS

_TEXT: Final = ("a text", (str,))
_FILE: Final = ("a path", (str, os.PathLike))
_TABLE: Final = ("a table of names and values", (Mapping,))
KINDS: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "tables": _TEXT,
    "into": _TEXT,
    "checkpointLocation": _FILE,
    "control": _TEXT,
    "format": _TEXT,
    "writer": _TEXT,
    "onTruncate": _TEXT,
    "onDrop": _TEXT,
    "onSwap": _TEXT,
    "onAlter": _TEXT,
    "onCascade": _TEXT,
    "onTableError": _TEXT,
    "parallel": ("a whole number", (int,)),
    "tableProperties": _TABLE,
    "rules": _TABLE,
    "hashKeyFile": _FILE,
    "auditEvery": ("a time such as 6h", (str, int, float)),
    "trigger": _TABLE,
}
"""What each argument of `mirror()` has to be."""
_BY_LOWER: Final = {name.lower(): name for name in KINDS}
_TRIGGERS: Final = ("processingTime", "availableNow", "once")


def check_kinds(given: Mapping[str, object]) -> None:
    """Refuse arguments of another kind; those that are None are not set.

    Raises:
        ConfigError: there is one.
    """
    for name, value in given.items():
        told, kinds = KINDS[name]
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise ConfigError(f"{name}={value!r} is not {told}.", hint="Numbers and switches stand without quotes.")


def check_names(source: Mapping[str, object]) -> None:
    """Refuse options of the source that are given twice, or are a misspelt argument of `mirror()`.

    Raises:
        ConfigError: there is one.
    """
    known = {option.name.lower() for option in OPTIONS}
    seen: dict[str, str] = {}
    for name in source:
        argument = _BY_LOWER.get(name.lower())
        if argument is not None:
            raise ConfigError(f"{name} is no argument of a mirror.", hint=f"It is spelt {argument}.")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise ConfigError(f"the options {other} and {name} are one.", hint="Remove one of them.")
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), [*known, *_BY_LOWER], n=1, cutoff=0.75)
            if near and near[0] in _BY_LOWER:
                raise ConfigError(f"{name} is no argument of a mirror.", hint=f"Did you mean {_BY_LOWER[near[0]]}?")


def property_texts(properties: Mapping[str, object] | None) -> dict[str, str]:
    """Return the properties of targets as texts: `true` as TOML and Python have it is the text that Delta knows.

    Raises:
        ConfigError: a value is a list, or a table, as TOML makes one of a name with a dot and without quotes.
    """
    made = {}
    for name, value in (properties or {}).items():
        if not isinstance(value, (str, int, float)):
            raise ConfigError(
                f"tableProperties: {name} has a value of the wrong kind.",
                hint="In a file, names with a dot stand in quotes: \"delta.appendOnly\" = 'true'.",
            )
        made[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def check_trigger(trigger: Mapping[str, Any] | None) -> None:
    """Refuse what Spark's `trigger()` does not take.

    Raises:
        ConfigError: it is not one of the triggers, with a value of its kind.
    """
    if trigger is None:
        return
    right = len(trigger) == 1 and all(
        isinstance(value, str) if name == _TRIGGERS[0] else name in _TRIGGERS and value is True
        for name, value in trigger.items()
    )
    if not right:
        raise ConfigError(
            f"trigger={dict(trigger)} is none of Spark's triggers for a mirror.",
            hint='Give one: {"processingTime": "5 seconds"} or {"availableNow": True}; none: batch after batch.',
        )
