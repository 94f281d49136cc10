"""What a query attached to a real daemon asks a server, where one is named, and what it does without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import DisconnectedError, SchemaError
from streaming_source.attached import feed as feed_module
from streaming_source.attached.feed import AttachedFeed
from streaming_source.options.source_options import SourceOptions
from streaming_source.source.load import load_plan
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def daemon(any_server: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Beside a primary whose rows do not name their columns."""
    any_server.add_user()
    any_server.sql(
        "CREATE DATABASE d", "CREATE TABLE d.t (a INT COMMENT 'key', b INT UNSIGNED)", "INSERT INTO d.t VALUES (1, 2)"
    )
    with Daemon(any_server, tmp_path_factory.mktemp("attached") / "relay") as daemon:
        daemon.catch_up()
        yield daemon


def _server(server: MariaDb) -> dict[str, str]:
    return {"host": server.host, "port": str(server.port), "user": "repl", "password": "replica-secret"}


def test_columns_without_names_come_from_the_catalog(any_server: MariaDb, daemon: Daemon) -> None:
    options = {"table": "d.t", "relayDir": str(daemon.relay_dir)}
    with pytest.raises(SchemaError, match=r"rows of d\.t .*do not name their columns.*Set host and user"):
        load_plan(options)
    any_server.sql("CREATE OR REPLACE USER 'reader'@'%' IDENTIFIED BY 'r'", "GRANT SELECT ON d.* TO 'reader'@'%'")
    plan = load_plan(options | _server(any_server) | {"user": "reader", "password": "r"})  # cannot replicate, need not
    assert [(c.name, c.type, c.comment) for c in plan.columns or ()] == [("a", "INT", "key"), ("b", "BIGINT", "")]
    plan = load_plan({"tables": "d.*", "relayDir": str(daemon.relay_dir)})
    assert plan.server == f"{any_server.host}:{any_server.port}"


def test_a_server_that_is_named_is_asked_about_prepared_transactions(
    any_server: MariaDb, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "SERVER_S", 60.0)
    given = {"table": "d.t", "relayDir": str(daemon.relay_dir), **_server(any_server)}
    feed = AttachedFeed(SourceOptions.parse(given), daemon.relay_dir)
    with any_server.connect() as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO d.t VALUES (3, 4)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        latest = feed.latest_and_prepared()
        cursor.execute("XA COMMIT 'x'")
    assert latest is not None
    assert {xid.gtrid for xid in latest.prepared} == {b"x"}
    assert str(latest.position) == str(latest.before)
    monkeypatch.setattr(feed_module, "SERVER_S", 0.1)
    feed = AttachedFeed(SourceOptions.parse(given | {"port": "1"}), daemon.relay_dir)
    with pytest.raises(DisconnectedError):
        feed.latest_and_prepared()
