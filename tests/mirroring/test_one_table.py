"""An error of one table is its state: the others go on, and the table comes back when it is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]


def _behind_the_log(primary: MariaDb, *statements: str) -> None:
    primary.sql("USE shop", "SET sql_log_bin = 0", *statements, "SET sql_log_bin = 1")


@pytest.mark.parametrize(("version", "metadata"), [("11.8", "NO_LOG"), ("10.5", "FULL")])
def test_what_the_stream_does_not_know_of_one_table_is_read_again(
    mirrored: Callable[..., Mirrored], version: str, metadata: str
) -> None:
    with MariaDb(version, f"--binlog-row-metadata={metadata}") as primary:
        fill_shop(primary, "t", "a", "b")
        mirror = mirrored(primary, "shop")
        mirror.run()
        _behind_the_log(primary, "ALTER TABLE t ADD z INT")
        primary.sql("USE shop", "INSERT INTO t VALUES (101, 1, 7)", "INSERT INTO a VALUES (101, 1)")
        mirror.run()
        mirror.assert_equal("t", "a", "b")
        assert mirror.states() == dict.fromkeys("tab", ("current", None))

        primary.sql(
            "USE shop", "RENAME TABLE t TO T", "INSERT INTO T VALUES (102, 1, 8)", "INSERT INTO b VALUES (102, 1)"
        )
        mirror.run()
        mirror.run()
        mirror.assert_equal("T", "a", "b")
        states = mirror.states()
        assert states["t"][0] == "dropped"
        assert states["T"] == states["a"] == states["b"] == ("current", None)

        primary.sql("USE shop", "SET sql_mode = ORACLE", "ALTER TABLE T ADD d DATE")
        primary.sql("USE shop", "INSERT INTO T VALUES (103, 1, 9, '2026-01-02 03:04:05')")
        primary.sql("USE shop", "SET sql_mode = ORACLE", "ALTER TABLE T ADD e DATE")
        primary.sql("USE shop", "INSERT INTO T VALUES (104, 1, 9, '2026-01-02 03:04:05', '2026-01-02 03:04:06')")
        primary.sql("INSERT INTO shop.a VALUES (103, 1)")
        mirror.run()
        mirror.assert_equal("T", "a", "b")

        primary.sql(
            "USE shop", "RENAME TABLE T TO t", "INSERT INTO t (id) VALUES (105)", "INSERT INTO b VALUES (105, 1)"
        )
        mirror.run()
        mirror.run()
        mirror.assert_equal("t", "a", "b")
        states = mirror.states()
        assert states["T"][0] == "dropped"
        assert states["t"] == states["a"] == states["b"] == ("current", None)
