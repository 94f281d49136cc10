"""Rows events around the 16 MB packet limit, and one of three packets, arrive whole.

A packet holds 2^24-1 bytes at most; a payload of exactly that size is followed by an empty packet. The payload of a
rows event for a table of one LONGBLOB is its value and 39 bytes: status 1, header 19, post-header 8, width 1, bitmap 1,
NULL bitmap 1, length 4, CRC32 4. (tests/integration/relay_log/test_relay_live.py has the packets of every version.)
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.server, pytest.mark.spark]

OVERHEAD = 39
PAYLOADS = (2**24 - 2, 2**24 - 1, 2**24, 33 << 20)


@pytest.mark.slow
def test_rows_events_of_any_size_arrive_whole(spark: SparkSession, tmp_path: Path) -> None:
    sizes = [payload - OVERHEAD for payload in PAYLOADS]
    got: dict[int, str] = {}

    def collect(batch: DataFrame, _: int) -> None:
        got.update({row["size"]: row["digest"] for row in batch.collect()})

    with MariaDb(None, "--max-allowed-packet=256M", "--innodb-log-file-size=256M") as server:
        server.sql("CREATE DATABASE large", "CREATE TABLE large.t (v LONGBLOB NOT NULL)")
        values = {size: hashlib.shake_256(str(size).encode()).digest(64) for size in sizes}
        for size, seed in values.items():
            server.sql(f"INSERT INTO large.t VALUES (LEFT(REPEAT(x'{seed.hex()}', {size // 64 + 1}), {size}))")
        # The server's own listing has the event lengths: the payload without the status byte.
        listed = server.sql(f"SHOW BINLOG EVENTS IN '{server.binlogs()[-1]}'")
        lengths = {end - begin for _, begin, kind, _, end, _ in listed if kind == "Write_rows_v1" and end > begin}
        if lengths:  # 11.7+ logs no end position inside a transaction
            assert {payload - 1 for payload in PAYLOADS} <= lengths
        stream = (
            spark.readStream.format("mariadb-binlog")
            .options(
                host=server.host,
                port=str(server.port),
                user=server.user,
                password=server.password,
                table="large.t",
                startingPosition="earliest",
                relayDir=str(tmp_path / "relay"),
            )
            .load()
        )
        query = (
            stream.select(f.length("after.v").alias("size"), f.sha2(f.col("after.v"), 256).alias("digest"))
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(180), query.status
    wanted = {size: hashlib.sha256((seed * (size // 64 + 1))[:size]).hexdigest() for size, seed in values.items()}
    assert got == wanted
