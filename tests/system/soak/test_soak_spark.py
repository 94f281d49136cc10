"""The soak of the Spark source, short: the driver is killed at two of the five points of a micro-batch.

These two are where it leaves most behind: a task that is writing, and a batch that the sink has and Spark's commit log
has not. What the other three leave, a checkpoint without a commit or a plain stop, is in
tests/spark/queries_and_daemons/test_restart.py.
`scripts/soak spark` kills as often as it is told, at all five, into Parquet and Delta, with any seed and version, and
lets workers, source processes, the daemon and the primary die beside; a failure here names the command.
"""

from __future__ import annotations

import pytest

from tools.proofs.soak.spark.points import BEFORE_COMMIT, IN_A_TASK
from tools.proofs.soak.spark.soak import soak_spark

SEED = 7
BACKLOG = 1 << 20
KILLED_AT = (IN_A_TASK, BEFORE_COMMIT)


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(900)  # half a minute on a quiet machine; a dozen times that where many tests share two cores
@pytest.mark.slow
def test_two_kills() -> None:
    kills = len(KILLED_AT)
    summary = soak_spark(
        None, kills=kills, seed=SEED, kinds=("parquet",), max_backlog=BACKLOG, skips=1, points=KILLED_AT
    )
    assert all(summary["points"]["parquet"][point] >= 1 for point in KILLED_AT)
    assert summary["rows"]["parquet"] > summary["groups"] > 0
