"""A table that a thread finds changed while a batch takes rows of it: between the choice of the rows and their file."""

from __future__ import annotations

import itertools
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import SchemaError
from replica.snapshot.chunks.schedule import ReadingList
from replica.snapshot.spool.batches import BatchWriter
from tests.integration.snapshot.kit.query import WAIT_S, SnapshotQuery
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill, ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.snapshot.spool.batches import BatchName
    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest"), pytest.mark.timeout(300)]

ROWS = 5000
"""Many chunks of ten rows, so that a thread still reads it."""
CHUNKS = 5


@pytest.fixture
def source(server_version: str, make_server: Callable[..., MariaDb]) -> MariaDb:
    server = make_server(server_version, METADATA)
    fill(server, "s.t", ROWS)
    return server


class LateBatch:
    """A batch that takes rows of s.t, which is changed, and found changed by a thread, before they are in their file.

    The table is locked when a few chunks are read, so that the thread waits for what the change makes of it. Those are
    read behind the batches `before` this one, which would otherwise leave it nothing to take.
    """

    def __init__(self, server: MariaDb, patch: pytest.MonkeyPatch) -> None:
        self._cursor = server.connect().cursor()
        self._patch = patch
        self._reads = itertools.count(1)
        self._before, self._locked, self._found = Event(), Event(), Event()
        for name in ("put", "give_back", "rekey"):
            patch.setattr(ReadingList, name, self._seen(getattr(ReadingList, name)))

    def _seen(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if method.__name__ == "put":
                read = next(self._reads)
                if read >= CHUNKS:
                    assert self._before.wait(WAIT_S), "the batches before it are delivered"
                if read == 2 * CHUNKS:
                    self._cursor.execute("LOCK TABLES s.t WRITE")
                    self._locked.set()
            elif method.__name__ == "rekey" or options.get("absent_at") is not None:
                self._found.set()
            return result

        return seen

    def deliver(self, query: SnapshotQuery, statement: str, *, before: int = 0) -> None:
        for _ in range(before):
            query.batch()
        self._before.set()
        finish = BatchWriter.finish

        def after_the_change(writer: BatchWriter, name: BatchName) -> Any:
            assert self._locked.wait(WAIT_S), "the table is locked"
            if not self._found.is_set():
                self._cursor.execute(statement)
                self._cursor.execute("UNLOCK TABLES")
            assert self._found.wait(WAIT_S), "a thread finds it changed"
            return finish(writer, name)

        self._patch.setattr(BatchWriter, "finish", after_the_change)
        known = len(query.state.get("t", ()))
        query.batch()
        assert len(query.state["t"]) > known


@pytest.mark.parametrize("delivered", [0, 1])
def test_by_another_key_it_is_not_read_on(
    source: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivered: int
) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        late = LateBatch(source, monkeypatch)
        late.deliver(query, "CREATE OR REPLACE TABLE s.t (v INT, id VARCHAR(9) PRIMARY KEY)", before=delivered)
        with pytest.raises(SchemaError):
            query.catch_up()
        query.stop()
        del query.state["t"]
        source.sql("INSERT INTO s.t (id, v) VALUES ('a', 1)")
        query.options["resnapshot"] = "s.t@1"
        query.catch_up()
        assert query.keys("t") == [("a",)]


def test_made_again_all_its_rows_come(source: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SnapshotQuery(source, tmp_path, "s.*", **SMALL_CHUNKS) as query:
        late = LateBatch(source, monkeypatch)
        late.deliver(query, "DROP TABLE s.t")
        query.state.clear()
        fill(source, "s.t", 30)
        query.catch_up()
        assert query.keys("t") == ids(source, "s.t")
