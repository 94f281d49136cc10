"""Processes that come and go: stopped queries, killed workers, two queries at once, a worker that slept."""

from __future__ import annotations

import contextlib
import pickle
import time

import psutil
import pytest
from pyspark import cloudpickle

from streaming_source import started
from streaming_source.driver.deployment import is_free
from streaming_source.source.data_source import MariaDbBinlogSource
from tests.spark.queries import Shop, ids, wait

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _planners() -> list[psutil.Process]:
    """Source processes of the session; those of queries that ended before may go at any moment."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "python_streaming_source_runner" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_stop_says_goodbye_to_the_primary_and_lets_the_relay_folder_go(shop: Shop) -> None:
    run = shop.run()
    shop.insert(1, 2)
    before = set(shop.primary.dump_threads())
    query = run.start(shop.changes())
    wait(lambda: len(run.rows) == 2, "rows", query)
    wait(lambda: len(set(shop.primary.dump_threads()) - before) == 1, "one dump thread", query)
    assert not is_free(shop.folder / "relay")
    query.stop()  # Spark calls nothing in the source: it sends SIGTERM
    wait(lambda: set(shop.primary.dump_threads()) <= before, "the dump thread is gone")
    wait(lambda: is_free(shop.folder / "relay"), "the relay folder is free")


def test_two_queries_with_the_same_options_use_two_folders_and_server_ids(shop: Shop) -> None:
    shop.insert(1, 2)
    changes = shop.changes(relayDir=None)
    runs = [shop.run("one"), shop.run("two")]
    before = set(shop.primary.dump_threads())
    queries = [started(run.start(changes)) for run in runs]
    for run, query in zip(runs, queries, strict=True):
        wait(lambda run=run: len(run.rows) == 2, "rows", query)  # type: ignore[misc]
    wait(lambda: len(set(shop.primary.dump_threads()) - before) == 2, "two dump threads")
    for query in queries:
        query.stop()
    assert [ids(run.rows) for run in runs] == [[1, 2], [1, 2]]


def test_a_task_gets_no_secret_and_nothing_prints_one(shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    changes = shop.changes()
    secret = "replica-secret"
    changes.explain(extended=True)
    shop.insert(1)
    run = shop.run()
    run.drain(changes)
    assert secret not in capfd.readouterr().out + str(changes)
    assert secret not in "".join(f.read_text() for f in run.checkpoint.rglob("*") if f.is_file() and f.suffix != ".crc")

    options = {
        "host": "127.0.0.1",
        "port": str(shop.primary.port),
        "user": "repl",
        "password": secret,
        "table": shop.orders,
    }
    source = MariaDbBinlogSource(options)
    schema = source.schema()
    for_the_driver = pickle.loads(cloudpickle.dumps(source))  # noqa: S301
    assert for_the_driver.options["password"] == secret  # the planner has to log in
    reader = for_the_driver.streamReader(schema)
    for_tasks = cloudpickle.dumps((reader, for_the_driver))
    assert secret.encode() not in for_tasks
    assert secret not in repr(reader) + repr(source) + repr(reader.__dict__)
    assert len(for_tasks) < 20_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_was_idle_for_a_minute_is_replaced_unnoticed(shop: Shop) -> None:
    run = shop.run()
    query = run.start(shop.changes())
    shop.insert(1)
    wait(lambda: len(run.rows) == 1, "rows", query)
    time.sleep(75)  # Spark ends idle Python workers after 60 s
    shop.insert(2)
    wait(lambda: len(run.rows) == 2, "rows after the pause", query)
    query.stop()
    assert ids(run.rows) == [1, 2]


def test_a_killed_planner_ends_the_query_and_the_next_one_goes_on(shop: Shop) -> None:
    run = shop.run()
    shop.insert(1, 2)
    query = run.start(shop.changes())
    wait(lambda: len(run.rows) == 2, "rows", query)
    planners = _planners()
    assert planners
    for planner in planners:
        with contextlib.suppress(psutil.NoSuchProcess):
            planner.kill()
    wait(lambda: query.exception() is not None, "the query notices")
    shop.insert(3, 2)
    assert ids(run.drain(shop.changes())) == [1, 2, 3, 4]
