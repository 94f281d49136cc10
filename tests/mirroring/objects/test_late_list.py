"""A store whose LIST is late: new objects are missing in it although GET finds them. Nothing is lost, nothing doubled.

Starts may end with an error meanwhile, because neither Spark nor delta-rs sees its own last files. After LIST has
caught up, the mirror continues.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.late_list import LateList
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.s3_faults import FaultyStore
from tests.mirroring.mirrors import fill_shop
from tests.mirroring.objects.conftest import BUCKET, InBucket, mirror_in, s3_settings
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.object_store import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


TRIES = 10


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("11.8") as running:
        fill_shop(running, "a", "log")
        yield running


@pytest.mark.parametrize("late_s", [5.0, 60.0])
def test_a_mirror_over_restarts(primary: MariaDb, store: ObjectStore, tmp_path: Path, late_s: float) -> None:
    """Rows of `log` are only inserted, so a change that is applied twice doubles a row.

    A table whose commit was not confirmed may be re-snapshotted; the log has a row for that (`again`).
    """
    with (
        FaultyStore("127.0.0.1", store.port, late=LateList(store, late_s)) as proxy,
        Workbench(s3_settings(tmp_path, store, proxy.endpoint), tmp_path, {}) as bench,
    ):
        options = {"rules": {"shop.log": {"mode": "append_log"}}}
        mirror = mirror_in(BUCKET, InBucket(bench, primary, "shop", tmp_path, options), store)
        proxy.set_active(False)
        mirror.run()  # a first start needs to see the folders that it just made
        proxy.set_active(True)
        for number in range(4):
            primary.sql(
                "USE shop",
                f"UPDATE a SET v = v + {number} WHERE id % 3 = {number % 3}",
                f"DELETE FROM a WHERE id = {number + 1}",
                "INSERT INTO log SELECT 1 + MAX(id), 0 FROM log",
            )
            if number == 2:
                proxy.set_active(False)
                mirror.resnapshot("a")
                proxy.set_active(True)
            try:
                mirror.run()
            except AssertionError as error:  # the next start repeats the batch
                assert store.secret_key not in str(error)  # noqa: PT017
        assert proxy.faults > 10
        proxy.set_active(False)
        for _ in range(TRIES):  # suspended tables are re-snapshotted after 10 s, 20 s, …
            mirror.run()
            states = {name: state for name, (state, _) in mirror.states().items()}
            if states["a"] == "current":
                mirror.assert_equal("a")
            if set(states.values()) == {"current"}:
                break
            time.sleep(10)
        assert set(states.values()) == {"current"}, mirror.states()
        log = [(key, kind) for key, kind in mirror.rows("log", "id, _change_type")]
        again = sum(kind == "again" for _, kind in log)
        made = Counter(key for key, kind in log if kind == "insert")
        read = Counter(key for key, kind in log if kind == "read")
        assert max(made.values(), default=1) == 1, "no change is there twice"
        assert max(read.values()) <= 1 + again, "a snapshot is there once for each re-snapshot"
        assert {str(key) for key in made | read} == {row[0] for row in mirror.source("log")}
