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


@pytest.mark.slow
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


@pytest.mark.slow
def test_members_of_a_merge_table_are_read_again_and_it_is_suspended_itself(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a")
        columns = "id INT NOT NULL PRIMARY KEY, v INT"
        primary.sql("USE shop", f"CREATE TABLE m1 ({columns}) ENGINE=MyISAM", "CREATE TABLE m2 LIKE m1")
        primary.sql("CREATE DATABASE other", "USE other", "CREATE TABLE u LIKE shop.m1")
        primary.sql("ALTER TABLE other.u ENGINE=MERGE UNION=(shop.m1, shop.m2) INSERT_METHOD=LAST")
        mirror = mirrored(primary, "shop", snapshotUnkeyed="whole")
        mirror.run()
        primary.sql("INSERT INTO other.u VALUES (1, 1)", "INSERT INTO shop.a VALUES (101, 1)")
        mirror.run()
        mirror.run()
        mirror.assert_equal("a", "m1", "m2")
        assert mirror.states() == dict.fromkeys(("a", "m1", "m2"), ("current", None))
        create = f"CREATE TABLE m ({columns}) ENGINE=MERGE UNION=({{members}}) INSERT_METHOD=LAST"
        primary.sql("USE shop", create.format(members="m1, m2"))
        primary.sql("INSERT INTO shop.m VALUES (2, 2)", "INSERT INTO shop.a VALUES (102, 1)")
        mirror.run()
        mirror.run()
        mirror.assert_equal("a", "m1", "m2")
        state, error = mirror.states()["m"]
        assert state == "failed"
        assert "its rows belong to other tables" in str(error)
        primary.sql("INSERT INTO shop.m2 VALUES (20, 1)")
        mirror.run()
        for statements in (
            ("DELETE FROM m WHERE id = 20", "ALTER TABLE m1 ADD x INT"),  # the server cannot open it any more
            ("DROP TABLE m", create.format(members="m2"), "INSERT INTO m VALUES (21, 1)", "DROP TABLE m"),
        ):
            primary.sql("USE shop", *statements)
            mirror.run()
            mirror.run()
            mirror.assert_equal("a", "m1", "m2")


@pytest.mark.slow
def test_a_table_that_cannot_be_read_again_keeps_its_rows(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a")
        primary.sql(
            "USE shop",
            "CREATE TABLE t (id INT PRIMARY KEY, v CHAR(200)) ENGINE=MyISAM",
            "INSERT INTO t SELECT seq, REPEAT('x', 200) FROM seq_1_to_5000",
        )
        mirror = mirrored(primary, "shop", snapshotUnkeyed="whole", snapshotChunkRows=1000)
        mirror.run()
        rows = mirror.target("t")
        assert len(rows) == 5000
        primary.stop()
        with (primary.datadir / "shop" / "t.MYD").open("r+b") as file:
            file.truncate(300_000)
        primary.start()
        mirror.resnapshot("t")
        mirror.run()
        state, error = mirror.states()["t"]
        assert state == "failed"
        assert "marked as crashed" in str(error)
        assert mirror.target("t") == rows
        primary.sql("REPAIR TABLE shop.t", "INSERT INTO shop.a VALUES (101, 1)")
        mirror.resnapshot("t")
        mirror.run()
        mirror.assert_equal("t", "a")
        assert mirror.states() == dict.fromkeys(("a", "t"), ("current", None))


@pytest.mark.slow
def test_what_no_row_shows_is_found_in_the_catalog(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11", "--binlog-row-metadata=NO_LOG") as primary:
        fill_shop(primary, "t", "a")
        mirror = mirrored(primary, "shop")
        mirror.run()
        _behind_the_log(primary, "ALTER TABLE t RENAME COLUMN v TO w, ADD INDEX (w)")
        primary.sql("USE shop", "SET timestamp = 946684800", "INSERT INTO t VALUES (101, 1)")
        mirror.run()
        mirror.run()
        mirror.assert_equal("t", "a")
        assert mirror.states() == dict.fromkeys("ta", ("current", None))
        code = f"spark.table({mirror.control!r}).select('lag').collect()"
        lags = mirror.workbench.run(f"result = [row[0] for row in {code}]")
        assert all(0 <= lag < 3600 for lag in lags), "SET timestamp makes no lag of decades"


@pytest.mark.slow
def test_what_is_wrong_with_a_table_at_the_start_is_its_own_matter(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a", "b", "taken")
        primary.sql(
            "USE shop",
            "CREATE TABLE keyless (n INT)",
            "INSERT INTO keyless VALUES (1), (1)",
            "CREATE TABLE isam (id INT PRIMARY KEY) ENGINE=MyISAM",
            "CREATE TABLE `order-items` (id INT PRIMARY KEY)",
            "CREATE TABLE A (id INT PRIMARY KEY)",
            "CREATE TABLE hidden (id INT PRIMARY KEY)",
            "INSERT INTO hidden VALUES (1)",
        )
        primary.sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM repl@'%'")
        primary.sql("GRANT REPLICATION SLAVE, REPLICATION SLAVE ADMIN, BINLOG MONITOR ON *.* TO repl@'%'")
        for table in ("a", "b", "taken", "keyless", "isam", "`order-items`", "A"):
            primary.sql(f"GRANT SELECT ON shop.{table} TO repl@'%'")
        mirror = mirrored(primary, "shop", tables="shop.*,shop.hidden")
        mirror.workbench.run(f"spark.sql('CREATE NAMESPACE IF NOT EXISTS {mirror.lake}'); result = True")
        mirror.workbench.run(f"spark.sql('CREATE TABLE {mirror.lake}.taken (x INT) USING delta'); result = True")
        with pytest.raises(AssertionError, match="cannot continue, and onTableError=fail ends the query: "):
            mirror.run(onTableError="fail")
        mirror.run()
        primary.sql("INSERT INTO shop.b VALUES (101, 1)", "INSERT INTO shop.keyless VALUES (2)")
        mirror.run()
        mirror.assert_equal("b")
        states = mirror.states()
        assert states.pop("b") == ("current", None)
        reasons = {
            "a": "would both become",
            "keyless": "no primary key",
            "isam": "MyISAM",
            "order-items": "order-items",
            "taken": "exists, and no mirror created it",
            "hidden": "GRANT SELECT ON `shop`.`hidden`",
        }
        assert {name: state for name, (state, _) in states.items()} == {"A": "current"} | dict.fromkeys(
            reasons, "failed"
        )
        assert not [name for name, reason in reasons.items() if reason not in str(states[name][1])], states

        primary.sql(
            "ALTER TABLE shop.keyless ADD id INT AUTO_INCREMENT PRIMARY KEY", "GRANT SELECT ON shop.hidden TO repl@'%'"
        )
        mirror.workbench.run(f"spark.sql('DROP TABLE {mirror.lake}.taken'); result = True")
        for table in ("keyless", "hidden", "taken", "isam"):
            mirror.resnapshot(table)
        mirror.run()
        mirror.run()
        mirror.assert_equal("b", "keyless", "hidden", "taken")
        states = mirror.states()
        assert states["isam"][0] == "failed", "nothing was done about it"
        assert "MyISAM" in str(states["isam"][1])
