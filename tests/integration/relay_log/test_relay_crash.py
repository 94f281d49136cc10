"""What MariaDB's own program reads in relay files after a crash: samples from a stream of a real server.

Every point between two system calls is tested in tests/unit/relay_writer/test_crash_points.py, on groups made by hand.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import GtidPosition
from replica.relay_log.location import relay_numbers
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.integration.relay_log.test_relay_live import receive
from tests.kit.relay.recorded_disk import Disk, Recorder, put

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

SAMPLES = 6  # a program started for each


async def test_mariadb_binlog_reads_what_a_crash_left(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE DATABASE crash", "CREATE TABLE crash.t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT)")
    rows = "INSERT INTO crash.t (b) SELECT REPEAT('c', seq * 20) FROM seq_1_to_30"
    server.sql("USE crash", *(rows, "UPDATE crash.t SET b = 'short' LIMIT 9", "FLUSH BINARY LOGS") * 4)
    live = tmp_path / "live"
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(live, patch)
        relay = RelayWriter.open(live, max_file_bytes=8000)
        await receive(server, relay)
        relay.close()
    theirs = server_gtids(server)
    assert relay_gtids(server, live) == theirs
    assert len(relay_numbers(live)) > 4

    chance = random.Random(1)
    # How many changes there are depends on how the stream arrived; the last of them is always among the samples.
    last = len(recorder.changes) - 1
    stops = [*sorted(chance.sample(range(last // 3, last), SAMPLES - 1)), last]
    disk, read = Disk(), []
    for at, change in enumerate(recorder.changes):
        disk.apply(change)
        if at not in stops:
            continue
        left = disk.after_kill() if stops.index(at) % 2 else disk.after_power_cut(chance)
        put(tmp_path / str(at), left)
        with RelayWriter.open(tmp_path / str(at)) as recovered:
            position = recovered.position
        ours = await asyncio.to_thread(relay_gtids, server, tmp_path / str(at))
        assert ours == theirs[: len(ours)]
        assert GtidPosition.parse("".join(ours[-1:])) == position
        read.append(len(ours))
    assert read[-1] == len(theirs)
