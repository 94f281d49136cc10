"""Fixtures of these cases: a place of an idle binlog counts as committed after half a second, not after ten.

In every second case each block that is read waits in a file of its own, as those of large tables do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock
from zlib import crc32

import pytest

from replica.snapshot.snapshot import TableSnapshot
from replica.snapshot.spool import spool

if TYPE_CHECKING:
    from collections.abc import Iterator

AGE_S = 0.5


@pytest.fixture(autouse=True)
def young_positions() -> Iterator[None]:
    """Nothing of these cases takes longer between binlog and engine, but the commits that are made to hang."""
    defaults = TableSnapshot.__init__.__kwdefaults__
    assert defaults is not None
    assert "age_s" in defaults
    with mock.patch.dict(defaults, age_s=AGE_S):
        yield


@pytest.fixture(autouse=True)
def own_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a case says whether it has them, so that it is the same in every run."""
    if crc32(request.node.nodeid.encode()) % 2:
        monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 0)
        monkeypatch.setattr(spool, "OWN_FILE_BYTES", 1)
