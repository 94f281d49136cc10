"""`scripts/soak galera`, short: a cluster that loses the node in use, without sysbench, and both judges."""

from __future__ import annotations

import pytest

from tools.proofs.soak.daemon import galera
from tools.proofs.soak.daemon.galera import soak_galera


@pytest.mark.server
def test_a_killed_node_costs_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(galera, "KINDS", ("node in use killed",))
    summary = soak_galera(None, faults=1, seed=7, programs=False)
    assert (summary["faults"], summary["changes_of_node"] > 0) == (1, True)
    assert summary["groups"] >= summary["acknowledged_marks"] > 0
