"""The name under which a query registers with a daemon. No two running queries have the same name.

`take_name` returns the name, and a lock on a file beside the registrations holds it while the query runs. The name is
the option readerName, or one made from the tables with a number. With it a restarted query finds its registration,
because Spark gives a source neither the query's name nor its checkpoint. A readerName that another running query has is
an error.
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
"""Most queries of the same tables on one relay log without a readerName. More of them are a sign of a loop that stops
no query.
"""
PATIENCE_S: Final = 5.0
"""Seconds to wait for a name. A query that was just stopped ends within two seconds, and its next start must find its
name free.
"""
POLL_S: Final = 0.1
TABLES_SHOWN: Final = 40
"""Letters of the tables in a made name, which is a file name and appears in lists for people."""


class ReaderName:
    """A name that this query holds until `close`, or until the process ends."""

    def __init__(self, text: str, path: Path, descriptor: int) -> None:
        self.text = text
        self._path = path
        self._descriptor: int | None = descriptor

    @property
    def held(self) -> bool:
        """Whether this query still holds the name. If the folder was made again, the lock is on a file without a
        name.
        """
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
    """Take and return the name of this query.

    Raises:
        RelayError: another running query has it, or the folder of the registrations cannot be written.
    """
    if options.reader_name is not None:
        taken = _wait_for(directory, options.reader_name)
        if taken is None:
            raise RelayError(
                f"another query reads {directory} as readerName={options.reader_name}.",
                hint="Give each query its own readerName. The daemon keeps files for each name.",
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
    """Make a name like spark-shop.orders-1f3a9c02: the tables, for people, and a hash of the tables and the row
    shape.
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
            hint="Add the account of the query to the daemon's group, which may write there, and mount the folder "
            "writable. If this readerName belongs to another account, set another one.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return ReaderName(name, path, descriptor)
