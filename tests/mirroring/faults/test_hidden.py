"""SELECT that is taken back while a table is begun: suspended, not taken for a table that was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.reading import beginnings
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

_REVOKE = (
    f"from {beginnings.__name__} import Beginnings"
    """
import pymysql
begin_all = Beginnings.begin_all
def revoked(self):
    begin_all(self)
    pymysql.connect(**{root!r}).query("REVOKE SELECT ON shop.b FROM repl")
    Beginnings.begin_all = begin_all
Beginnings.begin_all = revoked
"""
)


def test_a_table_that_is_hidden_when_its_target_was_made_is_set_aside(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql("REVOKE SELECT ON *.* FROM repl", "CREATE DATABASE shop")
        for table in "ab":
            primary.sql("USE shop", f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
            primary.sql(f"GRANT SELECT ON shop.{table} TO repl")
        mirror = mirrored(primary, "shop")
        root = {"host": primary.host, "port": primary.port, "user": "root", "password": primary.password}
        mirror.run(before=_REVOKE.format(root=root))
        mirror.assert_equal("a")
        state, error = mirror.states()["b"]
        assert state == "failed"
        assert "the account has no SELECT on it" in str(error)
