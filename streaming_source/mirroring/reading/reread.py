"""Reading tables of a mirror again while its query runs: the requests that go from the mirror to its source.

In: the mirror's checkpoint, tables, a word. Out: a request in a folder on the driver's machine, which the running query
takes at its next trigger, or the next start of the mirror. From then on the targets are made again from the catalog,
and all rows of the tables are read, while the other tables go on. The same word asks once, however often it is given.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming_source.driver.relay_directory import private_base
from streaming_source.mirroring.control.control_row import FAILED
from streaming_source.offsets.reading_requests import ReadingRequest, RequestFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow

RESYNC: Final = 'Have the table read again: mirror_resync(spark, tables=["{table}"], into=…).'
"""The hint behind what only that mends."""
FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 600.0
"""Each try waits twice as long as the one before: a table that is altered all the time costs no more than that."""
MOST_TRIES: Final = 5
"""Tries behind a fault; the last one comes five minutes after the first. Statements have no such end."""


def requests_folder(checkpoint: str) -> Path:
    """Return the folder for requests to the mirror with this checkpoint, on this machine.

    Raises:
        RelayError: others can write there.
    """
    path = checkpoint.removeprefix("file://").rstrip("/")
    path = path if "://" in path else str(Path(path).absolute())
    return private_base() / f"mirror-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def ask_again(checkpoint: str, tables: Iterable[TableName], word: str, *, wait_s: float = 0.0) -> None:
    """Ask the mirror with this checkpoint to read tables again, `wait_s` seconds from now at the earliest.

    Raises:
        ConfigError, RelayError: the request cannot be written.
    """
    request = ReadingRequest(word, tuple(sorted(tables)), time.time() + wait_s if wait_s else 0.0)
    RequestFolder(requests_folder(checkpoint)).put(request)


def wait_s(row: ControlRow) -> float:
    """Return how long a table waits before it is read again: not at all for a statement, the first time."""
    tries = row.tries + (row.state == FAILED)
    return min(FIRST_WAIT_S * 2.0 ** (tries - 1), LONGEST_WAIT_S) if tries else 0.0
