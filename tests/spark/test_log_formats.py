"""Row metadata, checksum, row image and compression, combined, on every server: the same changes come out.

The workload's model is the oracle for each image, the server's own tables for the replay.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.fixtures.workload import DATABASE, Workload
from tests.system.changes import DeliveredChange, check
from tests.system.job import changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.server, pytest.mark.spark]

TRANSACTIONS = 150


FORMATS = list(itertools.product(("NO_LOG", "FULL"), ("NONE", "CRC32"), ("FULL", "MINIMAL")))
# Compressed in every second format, chosen so that each other setting is met with and without.
COMPRESSED = ("FULL", "CRC32", "MINIMAL")


def compression(settings: tuple[str, ...]) -> str:
    return "ON" if sum(a == b for a, b in zip(settings, COMPRESSED, strict=True)) % 2 else "OFF"


@pytest.mark.parametrize(("metadata", "checksum", "image", "compress"), [(*f, compression(f)) for f in FORMATS])
def test_every_log_format_gives_the_same_changes(
    spark: SparkSession, server_version: str, tmp_path: Path, metadata: str, checksum: str, image: str, compress: str
) -> None:
    settings = (
        *(f"--binlog-row-metadata={metadata}", f"--binlog-checksum={checksum}", f"--binlog-row-image={image}"),
        *(f"--log-bin-compress={compress}", "--log-bin-compress-min-len=10"),
    )
    delivered: list[DeliveredChange] = []

    def collect(batch: DataFrame, _: int) -> None:
        delivered.extend(DeliveredChange(*row) for row in batch.collect())

    with MariaDb(server_version, *settings) as server:
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
