"""Keeps the first error of a relay log that is written, and raises it again from whatever is asked of the log later.

In: errors of the disk, and typed ones. Out: one typed error; None as long as the log can be used.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

from replica.errors import RelayError
from replica.relay_log.directory.disk import disk_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class LogFailure:
    """Hold what made one relay log unusable, if anything did: `error`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.error: RelayError | None = None

    def check(self) -> None:
        """Raise the error, made again so that it has a traceback of its own."""
        if self.error is not None:
            raise type(self.error)(self.error.message, hint=self.error.hint)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what goes wrong inside."""
        try:
            yield
        except OSError as error:
            self.fail(error)
        except RelayError as error:
            self.error = error
            raise

    def fail(self, error: OSError) -> NoReturn:
        """Keep an error of the disk, and raise it as ours."""
        self.error = disk_error(self.directory, error)
        raise self.error from error
