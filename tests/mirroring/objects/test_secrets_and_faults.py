"""A mirror into a bucket: its keys are in nothing that is written or printed, and faults lose and double nothing."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.s3_faults import FaultyStore, random_faults
from tests.mirroring.objects.conftest import BUCKET, InBucket, mirror_in, s3_settings
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.fixtures.object_store import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

_STATUS = """
import logging
from pyspark_mariadb_binlog import mirror_status
status = mirror_status(spark, into={into!r})
result = [str(row) for row in status.collect()], status._jdf.queryExecution().toString()
"""

_AUDIT = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, **{server!r})
result = {{table.table: {{kind: n for kind, n in table.counts.items() if n}} for table in found.tables}}
"""


def files_with(folder: Path, secret: str) -> list[str]:
    """Files below a folder that have the secret."""
    wanted = secret.encode()
    places = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)  # noqa: PTH118
    return [place for place in places if os.path.isfile(place) and wanted in open(place, "rb").read()]  # noqa: PTH113, PTH123


def test_the_keys_are_in_nothing_that_is_written_or_printed(
    primary: MariaDb, store: ObjectStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }
    with Workbench(s3_settings(tmp_path, store) | logged, tmp_path, {}) as bench:
        bench.run("import logging; logging.basicConfig(level=logging.DEBUG); spark.sparkContext.setLogLevel('INFO')")
        mirror = mirror_in(BUCKET, InBucket(bench, primary, "shop", tmp_path, {}), store)
        mirror.run(storageOptions={"secret_access_key": store.secret_key})
        mirror.assert_equal("a", "b")
        assert mirror.written_by("a")[0].startswith("delta-rs")
        status = bench.run(_STATUS.format(into=mirror.arguments["into"]))
        assert store.secret_key not in str(status)
        # Wrong keys for delta-rs alone: Spark writes, and the reason has neither the wrong key nor the right one.
        primary.sql("UPDATE shop.a SET v = v + 1 WHERE id < 5")
        wrong = "wrong-secret-0815"
        mirror.run(storageOptions={"secret_access_key": wrong})
        mirror.assert_equal("a", "b")
        status = bench.run(_STATUS.format(into=mirror.arguments["into"]))
        assert "the bucket lake refuses the credentials" in str(status)
        assert not [one for one in (wrong, store.secret_key, store.access_key) if one in str(status)]
    printed = "".join(capfd.readouterr())
    assert "DEBUG:py4j" in printed, "the log of all calls of Java was searched"
    signed = ("<StringToSign>", "<AWSAccessKeyId>")  # of the store's answer to a wrong key
    assert not [one for one in (wrong, store.secret_key, mirror.arguments["password"], *signed) if one in printed]
    for folder in (tmp_path, store.folder):
        assert files_with(folder, store.secret_key) == []
        assert files_with(folder, wrong) == []
    assert files_with(events, "SparkListenerJobStart"), "the event log was searched"


@contextlib.contextmanager
def load(primary: MariaDb) -> Iterator[Callable[[], int]]:
    """Write transactions all the time, ten a second; yields their number so far."""
    ended, numbers = threading.Event(), [0]

    def write() -> None:
        while not ended.wait(0.1):
            numbers[0] = number = numbers[0] + 1
            primary.sql(
                "USE shop",
                "BEGIN",
                f"UPDATE a SET v = v + {number} WHERE id % 3 = {number % 3}",
                f"INSERT INTO b SELECT seq, seq FROM seq_{10000 + 100 * number}_to_{10050 + 100 * number}",
                f"DELETE FROM b WHERE id % 7 = {number % 7}",
                "COMMIT",
            )

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield lambda: numbers[0]
        finally:
            ended.set()
        writing.result()


def test_a_mirror_under_load_with_faults_at_random_is_equal_in_the_end(
    primary: MariaDb, store: ObjectStore, tmp_path: Path
) -> None:
    with (
        FaultyStore("127.0.0.1", store.port, random_faults(11, 0.03, longest_s=3.0)) as proxy,
        Workbench(s3_settings(tmp_path, store, proxy.endpoint), tmp_path, {}) as bench,
    ):
        mirror = mirror_in(BUCKET, InBucket(bench, primary, "shop", tmp_path, {}), store)
        with load(primary) as written:
            for seen in range(6):
                try:
                    mirror.run()
                except AssertionError as error:  # the next start repeats the batch
                    assert store.secret_key not in str(error)  # noqa: PT017
                assert written() > 5 * (seen + 1), "the load goes on"
        proxy.set_active(False)
        mirror.run()
        mirror.assert_equal("a", "b")
        server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
        found = bench.run(_AUDIT.format(control=mirror.control, server=server))
        assert found == {"shop.a": {}, "shop.b": {}}
        assert proxy.faults > 10
