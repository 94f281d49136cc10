"""A mirror of servers whose init_connect and character sets are set against it: the targets are equal all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

HOSTILE = (
    "SET NAMES latin1; SET autocommit = 0, sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL', "
    "time_zone = '+12:45', sql_select_limit = 1, max_join_size = 1, sql_quote_show_create = 0, timestamp = 86400, "
    "system_versioning_asof = '2001-01-01', wait_timeout = 1, max_statement_time = 1, tx_isolation = 'READ-COMMITTED'"
)


@pytest.mark.parametrize("version", ["10.5", "11.8"])
def test_a_mirror_is_right_whatever_init_connect_does(mirrored: Callable[..., Mirrored], version: str) -> None:
    options = ("--skip-character-set-client-handshake", "--character-set-server=latin1", f"--init-connect={HOSTILE}")
    with MariaDb(version, *options) as primary:
        primary.add_user()
        primary.sql(
            "SET sql_mode = '', system_versioning_asof = DEFAULT, timestamp = DEFAULT",
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "USE shop",
            "CREATE TABLE a (id INT PRIMARY KEY, größe ENUM('klein','groß','日本') COMMENT 'Größe', at TIMESTAMP)",
            "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE)",
            "INSERT INTO a VALUES (1, 'groß', '2024-10-27 00:30:00'), (2, '日本', NULL), (3, 'klein', NULL)",
            "INSERT INTO b VALUES (1, 1), (2, 2), (3, 3)",
        )
        mirror = mirrored(primary, "shop")
        mirror.run()
        mirror.assert_equal("b")
        primary.sql("DELETE FROM shop.a WHERE id = 2", "INSERT INTO shop.a VALUES (4, '日本', NULL)")
        mirror.run()  # a statement on one of the tables in the same batch would have b read again
        mirror.assert_equal("b")
        primary.sql("ALTER TABLE shop.a ADD COLUMN straße VARCHAR(20) NOT NULL DEFAULT 'Bäckerweg' COMMENT 'für'")
        mirror.run()
        mirror.assert_equal("b")
        labels = f"[[r.id, r['größe'], r['straße']] for r in spark.sql('SELECT * FROM {mirror.lake}.a').collect()]"
        found = sorted(mirror.workbench.run(f"result = {labels}"))
        assert found == [[1, "groß", "Bäckerweg"], [3, "klein", "Bäckerweg"], [4, "日本", "Bäckerweg"]]
        assert mirror.states() == dict.fromkeys("ab", ("current", None))
