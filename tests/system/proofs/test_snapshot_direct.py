"""`scripts/prove snapshot` without Spark: its load, its tables, the offsets of real batches, and its judge.

An offset whose format the judge does not know, or a judge that is wrong about a key, shows here.
"""

from __future__ import annotations

import pytest

from tools.proofs.snapshot.direct import prove_directly

ROWS, BATCHES, SEED = 200, 4, 4


@pytest.mark.server
def test_tables_and_changes_are_judged_after_each_batch() -> None:
    options = {"snapshotChunkRows": "20", "snapshotConnections": "2"}
    summary = prove_directly(None, rows=ROWS, batches=BATCHES, seed=SEED, options=options, say=print)
    assert summary["of them with tables"] > 1
    assert min(summary["delivered"].values()) > 0
