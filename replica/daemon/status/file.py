"""Status file `relay.status` in the relay directory: the newest record, for those who may read that directory.

In: a `StatusRecord`. Out: the file, replaced as a whole every second, so that a reader sees the old or the new one.
Only on a full disk is it overwritten in place, and a reader that finds an incomplete record retries.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from pydantic import ValidationError

from replica.daemon.status.record import StatusRecord
from replica.errors import RelayError
from replica.relay_log.directory.disk import FULL, replace_file

if TYPE_CHECKING:
    from pathlib import Path

STATUS_NAME = "relay.status"
WRITE_EVERY_S = 1.0
STALE_S = 15.0
"""Age in seconds from which a record's writer has stopped or hangs. On a busy machine a record may be a few seconds
late.
"""

_ATTEMPTS = 5
_PAUSE_S = 0.02


def write_status(directory: Path, record: StatusRecord) -> None:
    """Replace the file.

    Raises:
        OSError: the file cannot be written. A full disk raises nothing.
    """
    path, data = directory / STATUS_NAME, record.model_dump_json().encode()
    try:
        replace_file(path, data)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _overwrite(path, data)


def _overwrite(path: Path, data: bytes) -> None:
    """Overwrite the existing blocks of the file, because the status matters most when the disk is full."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def read_status(directory: Path) -> StatusRecord | None:
    """Return the last record, or None if no daemon has written one.

    Raises:
        RelayError: the file cannot be read, or is of another version of this program.
    """
    path = directory / STATUS_NAME
    for attempt in range(_ATTEMPTS):
        try:
            return StatusRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RelayError(
                f"{path} cannot be read: {error.strerror}.", hint="Run this as the daemon's user."
            ) from None
        except ValidationError as error:
            if attempt == _ATTEMPTS - 1:
                first = error.errors(include_input=False, include_url=False)[0]
                raise RelayError(
                    f"{path} is not a status record of this version ({'.'.join(map(str, first['loc']))}: "
                    f"{first['msg']}).",
                    hint="Use the version of mariadb-replica that runs there.",
                ) from None
        time.sleep(_PAUSE_S)
    raise AssertionError("unreachable")
