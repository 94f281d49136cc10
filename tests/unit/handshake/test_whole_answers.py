"""Limits that a server puts on statements leave nothing out of a catalog."""

from __future__ import annotations

import pytest

from replica.errors import ServerError
from replica.handshake.ask import ask
from replica.handshake.catalog import read_tables
from replica.handshake.registration import Query, Steps
from replica.handshake.whole_answers import whole_answers
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config

TABLES = 5


@pytest.mark.server
async def test_no_table_is_left_out_by_a_limit_of_the_server(server_version: str) -> None:
    with MariaDb(server_version, "--init-connect=SET sql_select_limit = 1, max_statement_time = 3") as server:
        server.add_user()
        server.sql("CREATE DATABASE shop")
        for number in range(TABLES):
            server.sql(f"CREATE TABLE shop.t{number} (id INT PRIMARY KEY, v INT)")
        config = replica_config(server)
        found = await ask(config, lambda _: read_tables([("shop", None)]))
        assert [len(table.columns) for table in found.values()] == [2] * TABLES

        def limits() -> Steps[object]:
            return (yield Query("SELECT @@sql_select_limit, @@max_statement_time + 0"))

        assert await ask(config, lambda _: limits()) == [(str(2**64 - 1), "0.000000")]


def test_a_server_that_knows_no_such_limit_is_judged_by_what_comes_next() -> None:
    steps = whole_answers()
    next(steps)
    with pytest.raises(StopIteration):
        steps.throw(ServerError("unknown system variable", code=1193))
