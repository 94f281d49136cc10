"""The mirror as a program, for spark-submit: `python -m streaming_source.mirroring mirror.toml`.

In: a file with the arguments of `mirror()`. Out: the exit code: 0 where the query has ended by itself (a trigger of
once), that of our error where it is one, 130 behind Ctrl-C, else 1. The session is what spark-submit, or
spark-defaults.conf, makes it.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from replica import errors
from replica.errors import ReplicaError
from replica.plain_text import printable
from streaming_source.mirroring.mirror_file import read_mirror_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_OURS = re.compile(r"replica\.errors\.(\w+): ([^\n]*)")
_STARTS = re.compile(r"^[\w.]+(?:Error|Exception|Failure): ", re.MULTILINE)
_SPARKS_OWN = "\n=== Streaming Query ==="
_LONGEST = 2000
INTERRUPTED = 130
"""What shells say of a program that Ctrl-C ended."""
USAGE = "usage: python -m streaming_source.mirroring MIRROR.toml"


def main(arguments: Sequence[str]) -> int:
    """Run the mirror of a file until its query ends; return the exit code."""
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
        print("interrupted: the next start goes on behind the last batch that was done", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (Spark's, with ours in its text)
        return _told(str(error))
    return 0


def _run(given: dict[str, object]) -> None:
    from streaming_source.mirroring.call import mirror

    query = mirror(_session(), **given)  # type: ignore[arg-type]  # as the file has them; mirror() looks at each
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _session() -> SparkSession:
    """Return the session that is there, or a new one."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("mariadb mirror").getOrCreate()


def _told(text: str) -> int:
    """Print what ended the query; return the exit code of our error in it, or 1."""
    found = _OURS.search(text)
    print(printable(f"{found[1]}: {found[2]}" if found else _cause(text)), file=sys.stderr)
    kind = getattr(errors, found[1], None) if found else None
    return int(kind.exit_code) if kind is not None else 1


def _cause(text: str) -> str:
    """Return what an error of Spark's ends with: in front are its traceback and the way through foreachBatch."""
    text = text.partition(_SPARKS_OWN)[0].strip()
    starts = [found.start() for found in _STARTS.finditer(text)]
    return text[starts[-1] if starts else 0 :][:_LONGEST]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
