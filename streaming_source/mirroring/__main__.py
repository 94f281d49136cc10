"""Command line of the mirror, for spark-submit: `python -m streaming_source.mirroring mirror.toml`.

In: a TOML file with the arguments of `mirror()`, under the same names. `trigger`, `tableProperties` and `rules` are
TOML tables. Out: an exit code. It is 0 if the query ended normally (`availableNow`), 130 after Ctrl-C, the exit code of
a ReplicaError, and 1 after any other error. The session has the settings of spark-submit or spark-defaults.conf.
Refused with a ConfigError that names the file: an unreadable file, invalid TOML, missing arguments, and values that are
no string, number or boolean.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica import errors
from replica.errors import ConfigError, ReplicaError
from replica.protocol.plain_text import printable
from streaming_source.mirroring.arguments import ARGUMENTS, TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_OURS = re.compile(r"replica\.errors\.(\w+): ([^\n]*)")
_STARTS = re.compile(r"^[\w.]+(?:Error|Exception|Failure): ", re.MULTILINE)
_SPARKS_OWN = "\n=== Streaming Query ==="
_LONGEST = 2000
INTERRUPTED = 130
"""Exit code that shells report for a program that Ctrl-C ended."""
USAGE = "usage: python -m streaming_source.mirroring MIRROR.toml"
NEEDED: Final = tuple(one.name for one in ARGUMENTS if one.needed)
_TABLES: Final = tuple(one.name for one in ARGUMENTS if one.kind is TABLE)


def main(arguments: Sequence[str]) -> int:
    """Run the mirror that a file describes until its query ends, and return the exit code."""
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        return errors.ConfigError.exit_code
    try:
        given = read_mirror_file(arguments[0])
        _run(given)
    except ReplicaError as error:
        print(printable(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: the next start continues after the last completed batch", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (Spark's exception, which has a ReplicaError in its text)
        return _report(str(error))
    return 0


def _run(given: dict[str, object]) -> None:
    from streaming_source.mirroring.call import mirror

    query = mirror(_session(), **given)  # type: ignore[arg-type]  # mirror() checks the values
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("mariadb mirror").getOrCreate()


def _report(text: str) -> int:
    """Print why the query ended; return the exit code of a ReplicaError in the text, or 1."""
    found = _OURS.search(text)
    print(printable(f"{found[1]}: {found[2]}" if found else _cause(text)), file=sys.stderr)
    kind = getattr(errors, found[1], None) if found else None
    return int(kind.exit_code) if kind is not None else 1


def _cause(text: str) -> str:
    """Return the last exception in an error text of Spark, without the traceback and the frames of foreachBatch."""
    text = text.partition(_SPARKS_OWN)[0].strip()
    starts = [found.start() for found in _STARTS.finditer(text)]
    return text[starts[-1] if starts else 0 :][:_LONGEST]


def read_mirror_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments of `mirror()` that a TOML file has.

    Raises:
        ConfigError: the file cannot be read, is no TOML, lacks an argument that every mirror needs, or has a value of
            the wrong kind.
    """
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", hint="Give the path of a mirror's TOML file."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.", hint="Write strings in quotes.") from None
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise ConfigError(f"{path} lacks {', '.join(missing)}.", hint="Add these arguments of mirror().")
    if "spark" in given:
        raise ConfigError(f"{path}: spark is the session, which a file cannot set.", hint="Remove it.")
    for name, value in given.items():
        if isinstance(value, dict) != (name in _TABLES) or not isinstance(value, (str, int, float, bool, dict)):
            raise ConfigError(
                f"{path}: {name} has a value of the wrong kind.",
                hint=f"Only {', '.join(_TABLES)} are tables. Other arguments are strings, numbers, or true and false.",
            )
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
