"""Row metadata, checksum, row image and compression, combined, on all servers: the same changes come out.

The workload's model is the oracle for each image, the server's own tables for the replay. One query reads formats that
follow one another in a server's log, but one checksum a connection: a server takes the checksums out for a replica that
connected when it wrote none.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.fixtures.installation import installations
from tests.fixtures.load.workload import DATABASE, Workload
from tests.fixtures.mariadb import MariaDb
from tests.spark.queries import Run
from tools.proofs.changes import DeliveredChange, check
from tools.proofs.job import changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.spark]

TRANSACTIONS = 100
"""In each format."""
SETTINGS = (("NO_LOG", "FULL"), ("NONE", "CRC32"), ("FULL", "MINIMAL"))


class Format(NamedTuple):
    """Values of the server's variables."""

    binlog_row_metadata: str
    binlog_checksum: str
    binlog_row_image: str
    log_bin_compress: str


def formats(version: str) -> list[Format]:
    """Half of the eight combinations on each version, the other half on the next; those without checksums first.

    Any two values of any two settings meet on every version. Every second format is compressed, those with checksums
    on one version and those without on the next.
    """
    number = list(installations()).index(version)
    chosen: list[Format] = []
    for places in itertools.product((0, 1), repeat=3):
        if sum(places) % 2 == number % 2:
            metadata, checksum, image = (values[place] for values, place in zip(SETTINGS, places, strict=True))
            chosen.append(Format(metadata, checksum, image, "ON" if places[0] ^ places[2] else "OFF"))
    return sorted(chosen, key=lambda one: one.binlog_checksum != "NONE")


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_every_log_format_gives_the_same_changes(spark: SparkSession, server_version: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "checkpoint")
    whole: set[str] = set()
    with MariaDb(server_version, "--log-bin-compress-min-len=10") as server:
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "tables": f"{DATABASE}.*",
            "startingPosition": "earliest",
            "relayDir": str(tmp_path / "relay"),
        }
        work = Workload(server, seed=7)
        for checksum, chosen in itertools.groupby(formats(server_version), lambda one: one.binlog_checksum):
            for one in chosen:
                server.sql(*(f"SET GLOBAL {name} = {value}" for name, value in one._asdict().items()))
                before = set(work.transactions)
                if not before:
                    work.create()
                work.run(TRANSACTIONS)
                if one.binlog_row_image == "FULL":
                    whole |= work.transactions.keys() - before
            rows = run.drain(changes(spark, options))
            delivered = [DeliveredChange(*row) for row in rows]
            assert check(delivered, work, partial=True) > TRANSACTIONS, checksum
        columns = {table.name: set(table.names) for table in work.tables}
        images = [(row, image) for row in delivered if row.gtid in whole for image in (row.before, row.after) if image]
        assert images
        assert all(json.loads(image).keys() == columns[row.table] for row, image in images)
