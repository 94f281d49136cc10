"""Requests for a re-snapshot, from the mirror to its source, while the query runs.

In: the checkpoint of the mirror, tables, a word that identifies the request. Out: a file in a folder on the driver's
machine. The running query takes it at its next trigger, or the mirror at its next start. Then the targets are created
again from the catalog, and all rows of the tables are read, while the other tables go on. Repeated requests with the
same word have one effect.
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

RESNAPSHOT_HINT: Final = 'Re-snapshot the table: mirror_resnapshot(spark, tables=["{table}"], into=…).'
"""Hint of errors that only a re-snapshot resolves."""
FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 600.0
"""Longest wait before a retry. Each wait is twice the last one, so a table with endless ALTERs costs little."""
MOST_TRIES: Final = 5
"""Most retries after a fault; the last one comes five minutes after the first. Statements have no limit of retries."""


def requests_folder(checkpoint: str) -> Path:
    """Return the folder for requests to the mirror with this checkpoint, on this machine.

    Raises:
        RelayError: other users can write there.
    """
    path = checkpoint.removeprefix("file://").rstrip("/")
    path = path if "://" in path else str(Path(path).absolute())
    return private_base() / f"mirror-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def ask_again(checkpoint: str, tables: Iterable[TableName], word: str, *, wait_s: float = 0.0) -> None:
    """Ask the mirror with this checkpoint to re-snapshot tables, after at least `wait_s` seconds.

    Raises:
        ConfigError, RelayError: the request cannot be written.
    """
    request = ReadingRequest(word, tuple(sorted(tables)), time.time() + wait_s if wait_s else 0.0)
    RequestFolder(requests_folder(checkpoint)).put(request)


def wait_s(row: ControlRow) -> float:
    """Return the seconds before a table is re-snapshot: 0 for the first time after a statement."""
    tries = row.tries + (row.state == FAILED)
    return min(FIRST_WAIT_S * 2.0 ** (tries - 1), LONGEST_WAIT_S) if tries else 0.0
