"""Tables first, then their changes, planned and read without Spark: a strict sink equals the server, whatever restarts.

The sink takes no insert of a key that is there, and no change of a row that is not as the change says it was.
"""

from __future__ import annotations

import json
import pickle
import random
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import VariantVal

from replica.errors import AuthenticationError, KeyChangedError, PrerequisiteError
from replica.snapshot.frontier import Frontier
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.planning.tables.keys import EVERY_TABLE, KeyColumns
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan
from tests.fixtures.load.beside import moving_keys

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner
    from streaming_source.rows.read_plan import ReadPlan
    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

WAIT_S = 60.0
Images = dict[tuple[str, Any], dict[str, Any]]


class Shop:
    """A database of the test's own, with a table orders that writers may write to."""

    def __init__(self, server: MariaDb) -> None:
        server.add_user()
        self.server = server
        self.database = f"initial_{secrets.token_hex(4)}"
        self.sql(f"CREATE DATABASE {self.database}")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements)

    def make(self, table: str, columns: str, rows: int, values: str) -> None:
        self.sql(f"CREATE TABLE {self.database}.{table} ({columns})")
        if rows:
            self.sql(f"INSERT INTO {self.database}.{table} SELECT {values} FROM {self.database}.seq_1_to_{rows}")

    def state(self, *tables: str) -> Images:
        with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            found: Images = {}
            for table in tables:
                cursor.execute(f"SELECT * FROM {table}")
                assert cursor.description is not None
                names = [column[0] for column in cursor.description]
                found |= {(table, row[0]): dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
        return found

    def writing(self, table: str, *, keys: int, seed: int = 1) -> contextlib.AbstractContextManager[None]:
        return moving_keys(self.server, f"{self.database}.{table}", keys=keys, seed=seed)


class InitialQuery:
    """A query, its checkpoint and its strict sink; `kill` leaves nothing but the checkpoint."""

    def __init__(self, shop: Shop, folder: Path, **options: object) -> None:
        self.shop = shop
        self.folder = folder
        server = shop.server
        login = {"host": server.host, "port": server.port, "user": "repl", "password": "replica-secret"}
        given = {"startingPosition": "initial", "relayDir": folder / "relay", **login, **options}
        self.given = {name: str(value) for name, value in given.items()}
        self.rows: Images = {}
        self.reads = 0
        self.offset: SourceOffset | None = None
        self.offsets: list[SourceOffset] = []
        self._planner: ChangePlanner | None = None
        self._plan: ReadPlan | None = None

    @property
    def planner(self) -> ChangePlanner:
        if self._planner is None:
            self._plan = load_plan(self.given)
            self._planner = open_planner(SourceOptions.parse(self.given), self._plan)
        return self._planner

    def kill(self, *, lose_spool: bool = False, lose_relay: bool = False) -> None:
        if self._planner is not None:
            self._planner.close()
        self._planner = None
        if lose_spool:
            shutil.rmtree(self.folder / "relay" / "readers", ignore_errors=True)
        if lose_relay:
            shutil.rmtree(self.folder / "relay", ignore_errors=True)

    def begin(self) -> None:
        first = self.planner.initial_offset()
        self.offset = self.planner.latest_offset(_again(first), bounded=True)
        assert self.offset.anchor

    def plan_batch(self) -> SourceOffset:
        """The end of the next batch, as Spark writes it down; the query's own where nothing came for a minute."""
        assert self.offset is not None
        deadline = time.monotonic() + WAIT_S
        while (end := self.planner.latest_offset(_again(self.offset), bounded=True)) == self.offset:
            assert time.monotonic() < deadline, self.planner.report()
        return end

    def read(self, end: SourceOffset) -> list[dict[str, Any]]:
        assert self.offset is not None
        partitions = self.planner.partitions(_again(self.offset), _again(end))
        assert self._plan is not None
        plan = self._plan
        return [
            row
            for partition in pickle.loads(pickle.dumps(partitions))  # noqa: S301
            for batch in read_changes(partition, plan)
            for row in batch.to_pylist()
        ]

    def apply(self, end: SourceOffset, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            before, after = _image(row["before"]), _image(row["after"])
            where = f"{row['op']} {before} {after} in {row['transaction']['gtid']} up to {end.position} {end.snapshot}"
            if before is not None:
                assert self.rows.pop((row["table"], _key(before)), None) == before, where
            if after is not None:
                assert (row["table"], _key(after)) not in self.rows, where
                self.rows[row["table"], _key(after)] = after
            self.reads += row["op"] == "read"
        self.offset = end
        self.offsets.append(end)

    @property
    def reading(self) -> bool:
        assert self.offset is not None
        return self.offset.snapshot is not None and not self.offset.snapshot.finished

    def catch_up(self) -> None:
        """Read what the server has."""
        last = self.shop.server.gtid_binlog_pos()
        while self.reading or str(self.offset.position if self.offset else "") != last:
            end = self.plan_batch()
            self.apply(end, self.read(end))


def _again(offset: SourceOffset) -> SourceOffset:
    return SourceOffset.parse(json.loads(json.dumps(offset.json())))


def _image(value: Any) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _key(image: dict[str, Any]) -> Any:
    return next(iter(image.values()))


@pytest.fixture
def shop(server: MariaDb) -> Iterator[Shop]:
    made = Shop(server)
    yield made
    made.sql(f"DROP DATABASE {made.database}")


ORDERS = "id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2)"
ROW = "seq, CONCAT('order ', seq), seq + 0.25"


def test_a_table_under_a_writer_with_restarts_behind_every_step(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop.make("orders", ORDERS, 4000, ROW)
    table = f"{shop.database}.orders"
    rng = random.Random(7)
    query = InitialQuery(shop, tmp_path, table=table, snapshotChunkRows=500, maxRowsPerTrigger=1200)
    request.addfinalizer(query.kill)
    query.begin()
    with shop.writing("orders", keys=4500):
        while query.reading:
            end = query.plan_batch()
            read = end.snapshot != query.offset.snapshot if query.offset else False
            # Who is killed within the ten seconds that reading waits for at its start never gets to a row.
            step = rng.choice(["nothing", "offset log", "read", "spool lost", "all lost"]) if read else "nothing"
            if step in ("offset log", "spool lost", "all lost"):
                query.kill(lose_spool=step == "spool lost", lose_relay=step == "all lost")
            rows = query.read(end)
            if step == "read":
                query.kill()
                assert query.read(end) == rows
            query.apply(end, rows)
            if rng.random() < 0.5:
                query.planner.commit(_again(end))
            if read and rng.random() < 0.2:
                query.kill()
    query.catch_up()
    assert query.rows == shop.state("orders")
    assert query.reads > 200
    assert max(len(json.dumps(offset.json())) for offset in query.offsets) < 4096
    assert query.offsets[-1].snapshot is None or query.offsets[-1].snapshot.finished


def test_many_tables_of_all_sizes_while_they_change(shop: Shop, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shop.make("a_empty", ORDERS, 0, ROW)
    for number in range(12):
        shop.make(f"b_{number:02}", ORDERS, number % 3, ROW)
    shop.make("c_orders", ORDERS, 2000, ROW)
    shop.make("d_last", ORDERS, 700, ROW)
    names = ["a_empty", *(f"b_{number:02}" for number in range(12)), "c_orders", "d_last"]
    given = {"tables": f"{shop.database}.*", "snapshotChunkRows": 250}
    query = InitialQuery(shop, tmp_path, **given)
    request.addfinalizer(query.kill)
    query.begin()
    with (
        shop.writing("c_orders", keys=2500),
        shop.writing("d_last", keys=800, seed=5),
        shop.writing("a_empty", keys=50),
    ):
        while query.reading:
            end = query.plan_batch()
            query.apply(end, _typed(query.read(end)))
    last = shop.server.gtid_binlog_pos()
    while str(query.offset.position if query.offset else "") != last:
        end = query.plan_batch()
        query.apply(end, _typed(query.read(end)))
    found = {key: (row["name"], str(row["price"])) for key, row in query.rows.items()}
    assert found == {key: (row["name"], str(row["price"])) for key, row in shop.state(*names).items()}


@pytest.mark.slow
def test_a_table_that_comes_in_later_is_read_and_one_again_without_a_new_checkpoint(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop.make("first", ORDERS, 40, ROW)
    shop.make("later", ORDERS, 600, ROW)
    query = InitialQuery(shop, tmp_path, tables=f"{shop.database}.first")
    request.addfinalizer(query.kill)
    query.begin()

    def catch_up() -> None:
        last = shop.server.gtid_binlog_pos()
        while query.reading or str(query.offset.position if query.offset else "") != last:
            end = query.plan_batch()
            query.apply(end, _typed(query.read(end)))

    catch_up()
    assert {table for table, _ in query.rows} == {"first"}
    query.kill()
    query.given |= {"tables": f"{shop.database}.first,{shop.database}.later", "snapshotChunkRows": "100"}
    with shop.writing("later", keys=700), shop.writing("first", keys=60, seed=4):
        end = query.plan_batch()
        query.apply(end, _typed(query.read(end)))
        query.kill()
        while query.reading:
            end = query.plan_batch()
            query.apply(end, _typed(query.read(end)))
    catch_up()
    found = {key: (row["name"], str(row["price"])) for key, row in query.rows.items()}
    server = {key: (row["name"], str(row["price"])) for key, row in shop.state("first", "later").items()}
    assert found == server

    query.kill()
    query.given |= {"resnapshot": f"{shop.database}.first@now"}
    query.rows = {key: row for key, row in query.rows.items() if key[0] == "later"}
    query.apply(end := query.plan_batch(), _typed(query.read(end)))
    catch_up()
    assert {key: (row["name"], str(row["price"])) for key, row in query.rows.items()} == server


def _typed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def image(value: Any) -> Any:
        if value is None:
            return None
        made: dict[str, Any] = VariantVal(value["value"], value["metadata"]).toPython()
        return {name: made[name] for name in ("id", "name", "price")}

    return [{**row, "before": image(row["before"]), "after": image(row["after"])} for row in rows]


def test_a_frontier_is_compared_with_the_keys_that_the_catalog_has(shop: Shop) -> None:
    shop.sql(f"CREATE TABLE {shop.database}.two (a SMALLINT, b INT, v INT, PRIMARY KEY (b, a))")
    given = {"host": shop.server.host, "port": str(shop.server.port), "user": "repl", "password": "replica-secret"}
    options = SourceOptions.parse({"table": f"{shop.database}.two", **given})
    keys = KeyColumns(options.connection, None)
    two, gone, new = ((shop.database, name) for name in ("two", "was_dropped", "x_new"))
    kept = b"\x04\0" + (-3).to_bytes(4, "little", signed=True) + b"\x02\0" + (258).to_bytes(2, "little")
    frontier = Frontier().begin([two, gone, new]).advance(two, kept, 4).advance(gone, kept, 4)
    found = keys.delivered(frontier)
    ((name, columns, upto),) = found.open
    assert (name, [column.name for column in columns]) == (two, ["b", "a"])
    assert upto == ((1 << 31) - 3).to_bytes(4, "big") + ((1 << 15) + 258).to_bytes(2, "big")
    assert (found.after, set(found.pending)) == (new, {gone, new})
    assert keys.delivered(frontier.finish()).after == EVERY_TABLE


def test_a_table_that_may_not_be_read_any_more_is_no_error_of_the_others(shop: Shop) -> None:
    """SELECT is taken back while a part of the table is delivered: who follows each table has it asked for again."""
    shop.sql(f"CREATE TABLE {shop.database}.taken (a INT PRIMARY KEY)")
    shop.server.sql("CREATE OR REPLACE USER blind IDENTIFIED BY 'blind'", "GRANT REPLICATION SLAVE ON *.* TO blind")
    given = {"host": shop.server.host, "port": str(shop.server.port), "user": "blind", "password": "blind"}
    options = SourceOptions.parse({"table": f"{shop.database}.taken", **given})
    taken = (shop.database, "taken")
    frontier = Frontier().begin([taken]).advance(taken, b"\x04\0" + (7).to_bytes(4, "little"), 4)
    with pytest.raises(AuthenticationError, match="has no SELECT"):
        KeyColumns(options.connection, None).delivered(frontier)
    by_table = KeyColumns(options.connection, None, table_by_table=True)
    with pytest.raises(KeyChangedError, match="has no SELECT"):
        by_table.delivered(frontier)
    assert by_table.changed(frontier, [taken]) == [taken]


def test_what_cannot_be_read_is_refused_by_name_before_anything(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop.make("orders", ORDERS, 3, ROW)
    shop.sql(f"CREATE TABLE {shop.database}.nokey (a INT)")
    query = InitialQuery(shop, tmp_path, tables=f"{shop.database}.*")
    request.addfinalizer(query.kill)
    with pytest.raises(PrerequisiteError, match="nokey"):
        query.begin()
    query.kill()


def test_sequence_texts_of_rows_sort_before_later_changes_of_every_domain(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop.make("orders", ORDERS, 30, ROW)
    table = f"{shop.database}.orders"
    change = f"UPDATE {table} SET price = price + 1 WHERE id = 20"
    shop.sql("SET SESSION gtid_domain_id = 7", change, "SET SESSION gtid_domain_id = 0", *[change] * 5)
    query = InitialQuery(shop, tmp_path, table=table, rowShape="flat")
    request.addfinalizer(query.kill)
    query.begin()

    def texts(kind: str) -> list[str]:
        found: list[str] = []
        while not found:
            end = query.plan_batch()
            found = [row["_sequence"] for row in query.read(end) if row["_change_type"] == kind]
            query.offset = end
        return found

    read = texts("insert")
    assert len(set(read)) == 30
    for domain in (7, 0):
        shop.sql(f"SET SESSION gtid_domain_id = {domain}", change)
        assert max(read) < min(texts("update_postimage"))
    query.kill()
