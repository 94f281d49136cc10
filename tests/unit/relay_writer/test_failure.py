from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.relay_writer.open_file import LogFailure

if TYPE_CHECKING:
    from pathlib import Path


def test_what_went_wrong_once_is_raised_from_every_later_call(tmp_path: Path) -> None:
    failure = LogFailure(tmp_path)
    failure.check()
    with pytest.raises(DiskFullError) as first, failure.kept():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for _ in range(2):
        with pytest.raises(DiskFullError) as later:
            failure.check()
        assert later.value is not first.value, "each has a traceback of its own"
        assert (later.value.message, later.value.hint) == (first.value.message, first.value.hint)


def test_an_error_of_ours_is_kept_as_it_is(tmp_path: Path) -> None:
    failure = LogFailure(tmp_path)
    with pytest.raises(RelayError, match="closed"), failure.kept():
        raise RelayError("it was closed", hint="open it")
    with pytest.raises(RelayError, match="closed"):
        failure.check()
