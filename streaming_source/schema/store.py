"""The storage of the tables' state beside an offset: in the offset's text, or in a file in schemaLocation.

`SchemaStore.write` returns the value for the offset: the text itself, or the name of a file with the text. The name of
a file is the digest of its content, and it is written atomically. So a torn or foreign file is noticed, and two queries
may share a folder. Files that no offset needs any more are deleted, except for the newest, which an operator may need
for resetting a checkpoint.

Errors: a text that does not fit into an offset, without a folder; a file that is missing or changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INLINE: Final = 64 << 10
"""Most characters in an offset. Spark writes each offset to a file and shows it in each progress report."""
FILES_KEPT: Final = 32
"""Unused files to keep. Each is a change of a table, and an operator resets a checkpoint by some batches, not by many
changes.
"""

_FILE: Final = "file:"
_SUFFIX: Final = ".tables"


class SchemaStore:
    """The store of one query. If `folder` is None, offsets carry the text."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._used: dict[str, None] = {}

    def write(self, text: str) -> str:
        """Store a text; return the value for the offset.

        Raises:
            ConfigError: it is too long for an offset, or the folder cannot be written.
        """
        if self._folder is None:
            if len(text) > MAX_INLINE:
                raise ConfigError(
                    f"the definitions of the tables take {len(text) >> 10} KB, too much to keep in every offset.",
                    hint="Set schemaLocation to a folder that outlives this machine, select fewer tables, or set "
                    "binlog_row_metadata=FULL on the primary: then rows describe themselves.",
                )
            return text
        name = hashlib.sha256(text.encode("ascii")).hexdigest()
        path = self._folder / f"{name}{_SUFFIX}"
        if not path.exists():
            with _writing(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=name)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
        self._used[name] = None
        return _FILE + name

    def read(self, stored: str) -> str:
        """Return the text for the value of an offset.

        Raises:
            ConfigError: its file is missing or changed.
        """
        if not stored.startswith(_FILE):
            return stored
        name = stored.removeprefix(_FILE)
        if self._folder is None:
            raise ConfigError(
                "the checkpoint keeps the tables' columns in a folder, and schemaLocation is not set.",
                hint="Set schemaLocation as it was when the checkpoint was written.",
            )
        path = self._folder / f"{name}{_SUFFIX}"
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise _lost(path, str(error)) from None
        if hashlib.sha256(text.encode("ascii")).hexdigest() != name:
            raise _lost(path, "its content has changed")
        self._used[name] = None
        return text

    def release(self, stored: str | None) -> None:
        """Delete files that neither the offset with the value `stored` nor a later one needs."""
        if self._folder is None or stored is None:
            return
        needed = stored.removeprefix(_FILE)
        for name in list(self._used):
            if name == needed:
                break
            del self._used[name]
        with contextlib.suppress(OSError):  # another query may remove the same file
            files = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
            for path in files[:-FILES_KEPT]:
                if path.name.removesuffix(_SUFFIX) not in self._used:
                    path.unlink()


def _lost(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the table definitions of the checkpoint's offset cannot be read from {path}: {reason}.",
        hint="Restore the folder of schemaLocation, or start a new checkpoint with startingPosition and schemaFile.",
    )


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"schemaLocation {folder} cannot be written: {error.strerror}.",
            hint="Name a folder that the driver may write, also after it moves to another machine.",
        ) from None
