"""A short run of the long proof (scripts/prove exactly-once): cuts and kills, every row identity once."""

from __future__ import annotations

import pytest

from tools.proofs.exactly_once import prove

# tests/system/soak/test_soak_spark.py kills in every run of the suite, at points it chooses.
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_killed_and_cut_every_change_arrives_once() -> None:
    assert "each exactly once" in prove(None, transactions=3000, kills=2, seed=20_261)
