from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.relay_log.directory.lock import NamedFile, RelayLock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_whose_file_goes_while_it_is_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = NamedFile.of
    removed: list[int] = []

    def of(descriptor: int, path: Path) -> NamedFile:
        if not removed:
            removed.append(1)
            path.unlink()
        return real(descriptor, path)

    monkeypatch.setattr(NamedFile, "of", of)
    with RelayLock(tmp_path) as lock:
        assert lock.file.has_its_name()
        with pytest.raises(RelayError, match="in use"):
            RelayLock(tmp_path)
