"""Reader of an SQL file: yields the statements that may be DDL, one by one, without holding the file in memory.

The file may be a pipe, mariadb-dump's output of any size, or statements written by hand. A statement is yielded as
text, without its delimiter. INSERTs are skipped without copying them. `DELIMITER` is obeyed as in the command line
client, so that the body of a routine is not split into statements. Text is UTF-8; other bytes become U+FFFD.
"""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# A definition has at most 4096 columns, each with a comment of up to 1024 characters, and 64 KB of labels in total.
MAX_STATEMENT_BYTES: Final = 64 << 20

_BLANK = rb"(?>(?:\s|--[^\n]*+\n|\#[^\n]*+\n|/\*(?!M?!).*?\*/)*)"
_DDL = re.compile(_BLANK + rb"(?=CREATE|ALTER|DROP|RENAME|USE|SET|/\*M?!)", re.IGNORECASE | re.DOTALL)
_DELIMITER = re.compile(_BLANK + rb"DELIMITER[ \t]+(\S+)[^\n]*+", re.IGNORECASE | re.DOTALL)
# Atomic groups instead of possessive repeats of groups, which Python before 3.11.5 matches wrongly.
_BODY: Final = rb"""(?>(?:
    '[^'\\]*+(?>(?:(?:\\.|'')[^'\\]*+)*)' | "[^"\\]*+(?>(?:(?:\\.|"")[^"\\]*+)*)" | `[^`]*+`
  | /\*.*?\*/ | --(?=\s)[^\n]*+ | \#[^\n]*+
  | [^'"`/\#\-%b]++ | (?!%b).
)*)"""


def statements_of(path: str | Path) -> Iterator[str]:
    """Yield the statements of a file that may be DDL, in order.

    Raises:
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        if file.seekable():
            yield from _mapped(file)
        else:
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                yield from _mapped(copy)


def _mapped(file: IO[bytes]) -> Iterator[str]:
    if file.seek(0, 2):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _statements(data)


def _statements(data: mmap.mmap) -> Iterator[str]:
    at, delimiter = 0, b";"
    body = _body(delimiter)
    while at < len(data):
        command = _DELIMITER.match(data, at)
        if command is not None:
            delimiter, at = command[1], command.end()
            body = _body(delimiter)
            continue
        found = body.match(data, at)
        end = found.end() if found else at
        ddl = _DDL.match(data, at, end)
        if ddl is not None and end - ddl.end() <= MAX_STATEMENT_BYTES:
            yield data[ddl.end() : end].decode("utf-8", "replace")
        at = end + len(delimiter)


def _body(delimiter: bytes) -> re.Pattern[bytes]:
    """Return the expression that matches a statement up to its delimiter, or to the end."""
    return re.compile(_BODY % (re.escape(delimiter[:1]), re.escape(delimiter)), re.VERBOSE | re.DOTALL)
