"""Fixtures of these cases: a place of an idle binlog counts as committed after half a second, not after ten."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest

from replica.table_reader.snapshot import TableSnapshot

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
