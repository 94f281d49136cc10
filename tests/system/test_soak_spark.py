"""The soak of the Spark source, short: the driver is killed once at each of the five points of a micro-batch.

`scripts/soak spark` kills as often as it is told, into Parquet and Delta, with any seed and version, and lets workers,
source processes, the daemon and the primary die beside; a failure here names the command.
"""

from __future__ import annotations

import pytest

from tests.system.soak.spark import soak_spark
from tests.system.soak.spark_points import POINTS

SEED = 7
BACKLOG = 1 << 20


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(900)  # under a minute on a quiet machine; a dozen times that where many tests share two cores
def test_five_kills() -> None:
    summary = soak_spark(None, kills=len(POINTS), seed=SEED, kinds=("parquet",), max_backlog=BACKLOG, skips=1)
    assert min(summary["points"]["parquet"].values()) >= 1
    assert summary["rows"]["parquet"] > summary["groups"] > 0
