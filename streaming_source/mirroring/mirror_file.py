"""The file of a mirror: TOML with the arguments of `mirror()`, names and values as in the call.

In: a path. Out: the arguments, by name; `trigger`, `tableProperties` and `rules` are tables of TOML. Refused, with a
ConfigError that names the file: what cannot be read, what is no TOML, arguments that are missing, values that are no
single word, number or switch.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from replica.errors import ConfigError

NEEDED: Final = ("tables", "into", "checkpointLocation")
_TABLES: Final = ("trigger", "tableProperties", "rules")


def read_mirror_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments that a file has.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or lacks an argument that every mirror needs.
    """
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Name the file of a mirror.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}.", hint="Strings stand in quotes there.") from None
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise ConfigError(f"{path} lacks {', '.join(missing)}.", hint="Give what mirror() takes, one name a line.")
    if "spark" in given:
        raise ConfigError(f"{path}: spark is the session, which no file has.", hint="Remove it.")
    for name, value in given.items():
        if isinstance(value, dict) != (name in _TABLES) or not isinstance(value, (str, int, float, bool, dict)):
            raise ConfigError(
                f"{path}: {name} has a value of the wrong kind.",
                hint=f"Of all arguments only {', '.join(_TABLES)} are tables; the others are texts, numbers, or "
                "true and false.",
            )
    return given
