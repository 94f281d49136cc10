"""Row metadata, checksum, row image and compression, combined, on all servers: the same changes come out.

The workload's model is the oracle for each image, the server's own tables for the replay.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.workload import DATABASE, Workload
from tests.system.changes import DeliveredChange, check
from tests.system.job import changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.server, pytest.mark.spark]

TRANSACTIONS = 150
Format = tuple[str, str, str, str]
SETTINGS = (("NO_LOG", "FULL"), ("NONE", "CRC32"), ("FULL", "MINIMAL"))


def formats() -> list[tuple[str, Format]]:
    """(server version, format): half of the eight combinations on each version, the other half on the next.

    Any two values of any two settings meet on every version. Every second format is compressed, those with checksums
    on one version and those without on the next.
    """
    chosen: list[tuple[str, Format]] = []
    for number, version in enumerate(list(installations()) or ["no-server"]):  # an empty list would skip the test
        for places in itertools.product((0, 1), repeat=3):
            if sum(places) % 2 == number % 2:
                metadata, checksum, image = (values[place] for values, place in zip(SETTINGS, places, strict=True))
                compress = "ON" if places[0] ^ places[2] else "OFF"
                chosen.append((version, (metadata, checksum, image, compress)))
    return chosen


@pytest.mark.parametrize(("version", "log_format"), formats())
def test_every_log_format_gives_the_same_changes(
    spark: SparkSession, version: str, log_format: Format, tmp_path: Path
) -> None:
    metadata, checksum, image, compress = log_format
    settings = (
        *(f"--binlog-row-metadata={metadata}", f"--binlog-checksum={checksum}", f"--binlog-row-image={image}"),
        *(f"--log-bin-compress={compress}", "--log-bin-compress-min-len=10"),
    )
    delivered: list[DeliveredChange] = []

    def collect(batch: DataFrame, _: int) -> None:
        delivered.extend(DeliveredChange(*row) for row in batch.collect())

    with MariaDb(version, *settings) as server:
        work = Workload(server, seed=7)
        work.create()
        work.run(TRANSACTIONS)
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "tables": f"{DATABASE}.*",
            "startingPosition": "earliest",
            "relayDir": str(tmp_path / "relay"),
        }
        query = (
            changes(spark, options)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert check(delivered, work, partial=image == "MINIMAL") > TRANSACTIONS
