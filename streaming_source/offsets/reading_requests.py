"""Requests for re-snapshots, from a program on the driver to the query that runs there: files in a folder.

`RequestFolder` is the folder that the option resnapshotRequests names. A request is one file, which is created
atomically. It has names of tables, a unique word, and a time before which it is not due. The query executes due
requests in the order of their times. It writes the word into its next offset, so that a request counts once, and
removes the file afterwards. Any other file in the folder with the suffix .json is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from replica.schema.known_tables import TableName

_SUFFIX: Final = ".json"


class ResnapshotRequest(NamedTuple):
    """Tables of one request.

    Attributes:
        not_before: seconds since 1970.
    """

    request_id: str
    tables: tuple[TableName, ...]
    not_before: float = 0.0


class RequestedTables(NamedTuple):
    """Requests that a batch begins to execute, as its offset lists them."""

    request_ids: tuple[str, ...]
    tables: tuple[TableName, ...]

    def json(self) -> dict[str, Any]:
        """Return the JSON value. Equal values give equal text."""
        return {"words": list(self.request_ids), "tables": [list(name) for name in self.tables]}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON value.

        Raises:
            KeyError, TypeError, ValueError: the value is not of this form.
        """
        tables = tuple((str(database), str(table)) for database, table in value["tables"])
        return cls(tuple(str(word) for word in value["words"]), tables)

    @classmethod
    def of(cls, requests: Iterable[ResnapshotRequest]) -> Self:
        """Return the union of several requests."""
        taken = list(requests)
        names = sorted({name for request in taken for name in request.tables})
        return cls(tuple(sorted(request.request_id for request in taken)), tuple(names))


class RequestFolder:
    """Requests of one query. Any number of programs may add requests; one query executes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"RequestFolder({str(self._folder)!r})"

    def put(self, request: ResnapshotRequest) -> None:
        """Write a request. It replaces a waiting request with the same word.

        Raises:
            ConfigError: the folder cannot be written.
        """
        value = {
            "word": request.request_id,
            "tables": list(map(list, request.tables)),
            "not_before": request.not_before,
        }
        path = self._path(request.request_id)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps(value), encoding="utf-8")
            unfinished.replace(path)
        except OSError as error:
            raise ConfigError(
                f"{self._folder} cannot be written: {error.strerror}.",
                hint="Name a folder that this account may write.",
            ) from None

    def due(self) -> list[ResnapshotRequest]:
        """Return the requests that are due, in the order of their times.

        Raises:
            ConfigError: the folder cannot be read, or has a file that is not a request.
        """
        now = time.time()
        return sorted(
            (one for one in self.waiting() if one.not_before <= now), key=lambda one: (one[2], one.request_id)
        )

    def waiting(self) -> list[ResnapshotRequest]:
        """Return all requests that were not removed, including requests that are not due.

        Raises:
            ConfigError: the folder cannot be read, or has a file that is not a request.
        """
        try:
            found = list(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"{self._folder} cannot be read: {error.strerror}.", hint="Name a folder that this account may read."
            ) from None
        return [_read(path) for path in found if path.suffix == _SUFFIX]

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove completed requests. Missing ones are ignored."""
        for request_id in request_ids:
            self._path(request_id).unlink(missing_ok=True)

    def _path(self, request_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(request_id.encode()).hexdigest()[:32]}{_SUFFIX}"


def _read(path: Path) -> ResnapshotRequest:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        tables = tuple((str(database), str(table)) for database, table in value["tables"])
        return ResnapshotRequest(str(value["word"]), tables, float(value["not_before"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a request for a re-snapshot: {error}.",
            hint="Remove the file. The folder of resnapshotRequests may hold only such requests.",
        ) from None
