"""First error of a relay log that is being written, raised again by every later operation.

`LogFailure.error` is None while the log is usable. Otherwise it is one typed error, also for an error of the disk.
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
    """First error of one relay log; `error` is None while there is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.error: RelayError | None = None

    def check(self) -> None:
        """Raise a copy of the error, which gets its own traceback."""
        if self.error is not None:
            raise type(self.error)(self.error.message, hint=self.error.hint)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Record errors that occur inside the block."""
        try:
            yield
        except OSError as error:
            self.fail(error)
        except RelayError as error:
            self.error = error
            raise

    def fail(self, error: OSError) -> NoReturn:
        """Record an error of the disk and raise it as a typed error."""
        self.error = disk_error(self.directory, error)
        raise self.error from error
