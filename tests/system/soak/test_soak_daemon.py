"""The soak of the daemon, short: two faults in every run of the tests; half of the kinds with the slow ones.

`scripts/soak daemon` runs as many as it is told, with any seed and version; a failure here names the command.
"""

from __future__ import annotations

import random

import pytest

from tools.proofs.soak.daemon.faults import FAULTS
from tools.proofs.soak.daemon.soak import soak

COUNT = len(FAULTS) // 2
SEED = 558
"""Of two faults that are over at once."""
PAUSE_S = (0.05, 0.5)
"""Three faults are nearly always at work: as many overlap as in a long soak, in half of its time."""


@pytest.mark.server
def test_two_faults() -> None:
    summary = soak(None, faults=2, seed=SEED, pause_s=PAUSE_S)
    assert summary["kinds"] == {"kill -9 of the daemon": 1, "dump thread killed": 1}
    assert summary["groups"] >= summary["promised"] > 0


@pytest.mark.server
@pytest.mark.timeout(900)  # half a minute on a quiet machine; a dozen times that where many tests share two cores
@pytest.mark.slow
def test_half_of_the_faults() -> None:
    summary = soak(None, faults=COUNT, seed=random.randrange(10**6), pause_s=PAUSE_S)
    assert summary["faults"] == COUNT
    assert summary["promised"] > 0
    assert summary["groups"] >= summary["promised"]
    assert summary["out_of_order"] > 0 or "out-of-order GTIDs" not in summary["kinds"]
