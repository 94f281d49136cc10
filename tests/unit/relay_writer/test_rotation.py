"""Rotation by age, and hours of it: nothing may grow."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from replica.errors import RelayError
from replica.protocol.gtid import Gtid
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.location import relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.retention import Retention, RetentionPolicy
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.installation import PROJECT
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import feed, receive, stored
from tests.unit.relay_writer.test_writer import primary_of


def sent(primary: Primary) -> bytes:
    """The packets of what the primary wrote since the last call."""
    packets = primary.wire()
    primary.events.clear()
    return packets


def test_a_file_is_closed_once_its_groups_are_old(tmp_path: Path) -> None:
    primary = primary_of(2)
    with RelayWriter.open(tmp_path, max_file_age_s=60) as relay:
        relay.roll_if_old(0)
        receiver = receive(relay, sent(primary))
        head = relay.head
        for now in (1000.0, 1059.9):
            relay.roll_if_old(now)
            assert relay_numbers(tmp_path) == [1]
        relay.roll_if_old(1060)
        assert relay_numbers(tmp_path) == [1, 2]
        assert relay.head == head, "what was published stays"
        assert RelayLog(tmp_path).locate(relay.position) is not None
        relay.sync()
        for now in range(2000, 100_000, 60):
            relay.roll_if_old(now)
        assert relay_numbers(tmp_path) == [1, 2], "a file without groups has no age"
        primary.transaction(Gtid(0, 1, 4))
        feed(receiver, sent(primary))
        assert relay.committed.file == 2
        relay.roll_if_old(200_000)
        assert relay_numbers(tmp_path) == [1, 2], "its age begins with its groups"
    assert sum(map(len, stored(tmp_path)[1])) == 3


def test_an_open_group_is_never_cut_by_age(tmp_path: Path) -> None:
    primary = primary_of(2)
    with RelayWriter.open(tmp_path, max_file_age_s=1) as relay:
        receiver = receive(relay, sent(primary))
        relay.roll_if_old(0)
        primary.transaction(Gtid(0, 1, 4), (50_000, 50_000))
        whole = sent(primary)
        for at in range(0, len(whole), 9000):
            if at:
                relay.roll_if_old(100 + at)
                assert relay_numbers(tmp_path) == [1]
            feed(receiver, whole[at : at + 9000])
        relay.roll_if_old(1e6)
        assert relay_numbers(tmp_path) == [1, 2]
    assert sum(map(len, stored(tmp_path)[1])) == 3


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    relay = RelayWriter.open(tmp_path)
    relay.close()
    with pytest.raises(RelayError, match="closed"):
        relay.roll_if_old()


def held() -> int:
    """Bytes that Python holds, without its table of all names of paths: one block, which grows in leaps."""
    traces = tracemalloc.take_snapshot().traces
    return sum(one.size for one in traces if one.size < 1 << 18 or one.traceback[0].filename != pathlib.__file__)


def simulated(hours: int, folder: Path) -> dict[str, Any]:
    """Each second of them; a transaction a minute, a file too, kept for an hour, two readers that follow."""
    began, hour = 1_700_000_000, 3600
    relay = RelayWriter.open(folder, max_file_age_s=59)
    retention = Retention(folder, RetentionPolicy(3600, 1 << 40, 1 << 40, "drop", 1e9))
    log, readers = RelayLog(folder), [ReaderRegistration(folder, name) for name in ("a", "b")]
    primary = Primary()
    seen, removed = [], 0
    tracemalloc.start()
    for second in range(hours * hour):
        relay.roll_if_old(float(second))
        if second % hour == 0:  # a connection lives an hour, and so does a file of the primary
            primary.open_file(f"bin.{second:06d}")
            receiver = receive(relay, sent(primary))
        if second % 60 == 0:
            primary.timestamp = began + second
            primary.transaction(Gtid(0, 1, second + 1))
            feed(receiver, sent(primary))
            os.utime(relay_path(folder, relay.committed.file), (began + second, began + second))
        if second % 600 == 0:
            for reader in readers:
                reader.keep_from(relay.committed, str(relay.position))
            assert log.locate(relay.position) is not None
            removed += retention.apply(began + second, float(second)).files
            assert relay.file_count() == len(relay_numbers(folder)) < 75
        if second % hour == 0:
            relay.sync()  # what the background still has to seal is no leak
            gc.collect()
            seen.append((held(), len(list(Path("/proc/self/fd").iterdir()))))
    tracemalloc.stop()
    reached = relay.committed.file
    relay.close()
    return {"seen": seen, "removed": removed, "reached": reached}


@pytest.mark.parametrize("hours", [8, pytest.param(24, marks=pytest.mark.slow)])
def test_hours_of_idling_and_rotation_leak_nothing(tmp_path: Path, hours: int) -> None:
    # In a process of its own: what threads of other tests allocate would count here.
    lines = (
        "import json, os, pathlib, sys",
        "os.fsync = os.fdatasync = lambda _: None",
        "from tests.unit.relay_writer.test_rotation import simulated",
        f"print(json.dumps(simulated({hours}, pathlib.Path(sys.argv[1]))))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), tmp_path], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found, files = json.loads(done.stdout), hours * 60
    seen = found["seen"]
    assert found["removed"] > files - 80
    assert found["reached"] >= files - 10
    # For each file in between. Python 3.12 keeps interned strings for good, and pathlib interns the names of files.
    kept_bytes = 200 if sys.version_info[:2] == (3, 12) else 100
    assert seen[-1][0] - seen[2][0] < kept_bytes * (files - 180), seen
    assert seen[-1][1] <= seen[1][1], seen
