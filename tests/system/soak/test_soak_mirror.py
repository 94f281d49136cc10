"""The soak of the mirror, short: kills, statements, audits without a false alarm, planted faults that are found."""

from __future__ import annotations

import pytest

from tools.proofs.soak.load.sysbench import fetch_sysbench
from tools.proofs.soak.mirror.faults import SHOWN
from tools.proofs.soak.mirror.soak import soak_mirror


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_mirror_stays_equal_and_every_planted_fault_is_found() -> None:
    fetch_sysbench()
    summary = soak_mirror("10.11", minutes=1, kills=1, warehouses=0, seed=20, tables=("plain", "altered", "emptied"))
    assert sum(summary["kills"].values()) > 0
    assert summary["faults found"].keys() == SHOWN.keys()
    assert min(summary["rows"].values()) > 0
