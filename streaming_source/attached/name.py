"""The name under which a query is registered with a daemon, and that no other running query has.

In: the options. Out: the name, held by a lock on a file beside the registrations for as long as the query runs. The
option readerName, or one made from the tables, with a number, so that a query that starts again finds its own: Spark
tells a source neither the query's name nor its checkpoint. Refused: a readerName that another running query has.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from typing import TYPE_CHECKING, Final

from replica.errors import RelayError
from replica.relay_log.directory.readers import READERS_NAME, make_readers_directory

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.options.source_options import SourceOptions

MAX_QUERIES: Final = 64
"""Queries of the same tables on one relay log without a readerName; more are a loop that forgot to stop them."""
PATIENCE_S: Final = 5.0
"""A query that was just stopped has two seconds to go, and its next start must find its name free."""
POLL_S: Final = 0.1
TABLES_SHOWN: Final = 40
"""Letters of the tables in a made name: it is a file's name, and one in lists for people."""


class ReaderName:
    """A name that is ours until `close`, or until the process ends."""

    def __init__(self, text: str, path: Path, descriptor: int) -> None:
        self.text = text
        self._path = path
        self._descriptor: int | None = descriptor

    @property
    def held(self) -> bool:
        """Whether it is ours still: not where the folder was made again, and our lock is on a file without a name."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return self._descriptor is not None and os.path.samestat(found, os.fstat(self._descriptor))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def take_name(directory: Path, options: SourceOptions) -> ReaderName:
    """Return the name of this query.

    Raises:
        RelayError: another running query has it, or the folder of the registrations cannot be written.
    """
    if options.reader_name is not None:
        taken = _wait_for(directory, options.reader_name)
        if taken is None:
            raise RelayError(
                f"another query reads {directory} as readerName={options.reader_name}.",
                hint="Each query needs a name of its own: the daemon keeps files by it.",
            )
        return taken
    made = made_name(options)
    if (taken := _wait_for(directory, f"{made}-1")) is not None:
        return taken
    for number in range(2, MAX_QUERIES + 1):
        if (taken := _try(directory, f"{made}-{number}")) is not None:
            return taken
    raise RelayError(
        f"{MAX_QUERIES} queries of these tables are reading {directory}.", hint="Stop some, or give each a readerName."
    )


def made_name(options: SourceOptions) -> str:
    """Make a name like spark-shop.orders-1f3a9c02: what the query reads, for people, and a hash of what else tells two
    queries apart.
    """
    tables = ",".join(options.patterns)
    key = f"{tables}|{options.row_shape}"
    shown = re.sub(r"[^A-Za-z0-9_.-]+", "_", tables)[:TABLES_SHOWN].strip("_.") or "tables"
    return f"spark-{shown}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _wait_for(directory: Path, name: str) -> ReaderName | None:
    deadline = time.monotonic() + PATIENCE_S
    while (taken := _try(directory, name)) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return taken


def _try(directory: Path, name: str) -> ReaderName | None:
    path = directory / READERS_NAME / f"{name}.lock"
    try:
        make_readers_directory(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RelayError(
            f"the query cannot register with the daemon: {path} cannot be written ({error.strerror or error}).",
            hint="Give the account of the query the daemon's group, which may write there, and mount the folder "
            "writable; or set another readerName, if this one belongs to another account.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return ReaderName(name, path, descriptor)
