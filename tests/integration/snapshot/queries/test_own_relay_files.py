"""A query with small relay files: what it still needs stays, and what is missing all the same is fetched again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.snapshot.frontier import NOTHING
from streaming_source.offsets.reading_requests import RequestFolder, ResnapshotRequest
from tests.integration.snapshot.kit.query import SnapshotQuery, image_of
from tests.integration.snapshot.kit.tables import SMALL_CHUNKS, fill, ids

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from tests.fixtures.mariadb import MariaDb
    from tests.integration.snapshot.kit.query import Row

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

SMALL_FILES = {"relayMaxFileBytes": "4096"}
TABLES = ("a", "b", "c", "d")


class LastRows(SnapshotQuery):
    """Keeps the last state of each row, as a MERGE does; a table that is read again begins empty."""

    def _apply(self, row: Row) -> None:
        held = self.state.setdefault(row["table"], {})
        before, after = (image_of(row, side) for side in ("before", "after"))
        if before is not None:
            held.pop(self._key(row["table"], before), None)
        if after is not None:
            held[self._key(row["table"], after)] = after

    def committed(self, end: SourceOffset) -> None:
        for name, kept in () if end.snapshot is None else end.snapshot.open:
            if kept == NOTHING:
                self.state.pop(name[1], None)
        super().committed(end)


def remove_files(folder: Path, *numbers: int) -> None:
    for number in numbers:
        relay_path(folder, number).unlink()
        index_path(folder, number).unlink(missing_ok=True)


def test_files_that_are_removed_under_a_query_are_fetched_again(any_server: MariaDb, tmp_path: Path) -> None:
    fill(any_server, "s.t", 200)
    with SnapshotQuery(any_server, tmp_path, "s.t", **SMALL_CHUNKS, **SMALL_FILES) as query:
        query.catch_up()
        for first in range(1000, 1400, 40):
            values = ", ".join(f"({number}, 0, REPEAT('y', 40))" for number in range(first, first + 40))
            any_server.sql(f"INSERT INTO s.t VALUES {values}")
        query.receive_all()
        numbers = relay_numbers(query.relay)
        assert len(numbers) > 3
        remove_files(query.relay, *numbers[:-1])  # the place that the query goes on from, and more
        query.catch_up()
        assert len(query.keys("t")) == 600


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_file_is_removed_that_a_reading_needs(any_server: MariaDb, tmp_path: Path, seed: int) -> None:
    """Tables are swapped, asked for again and written to while they are read; the query is restarted in between."""
    rng = random.Random(seed)
    for table in TABLES:
        fill(any_server, f"k.{table}", 60)
    requests = RequestFolder(tmp_path / "requests")
    options = {**SMALL_CHUNKS, **SMALL_FILES, "resnapshotRequests": str(tmp_path / "requests")}
    with LastRows(any_server, tmp_path, "k.a,k.b,k.c,k.d", **options) as query:
        for step in range(60):
            match rng.choice(["fill", "fill", "swap", "swap", "ask", "restart", "batch", "batch", "batch", "batch"]):
                case "fill":
                    table, first = rng.choice(TABLES), 1000 + 100 * step
                    values = ", ".join(f"({first + number}, {seed}, REPEAT('x', 40))" for number in range(30))
                    any_server.sql(f"INSERT INTO k.{table} VALUES {values}")
                case "swap":
                    one, other = rng.sample(TABLES, 2)
                    any_server.sql(f"RENAME TABLE k.{one} TO k.away, k.{other} TO k.{one}, k.away TO k.{other}")
                case "ask":
                    names = rng.sample(TABLES, 2)
                    requests.put(ResnapshotRequest(f"{seed}-{step}", tuple(("k", name) for name in sorted(names))))
                case "restart":
                    query.stop()
                case _ if query.offset is None or query.reading or not query.has(any_server.gtid_binlog_pos()):
                    query.batch()
        query.catch_up()
        for table in TABLES:
            assert [key for (key,) in query.keys(table)] == [key for (key,) in ids(any_server, f"k.{table}")], table
    any_server.sql("DROP DATABASE k")
