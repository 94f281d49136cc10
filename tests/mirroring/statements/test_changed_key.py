"""Tables whose key is changed while a part of their first rows is delivered: they begin again, and the others go on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 600
CHANGES = {
    "another type": ["ALTER TABLE shop.big MODIFY id BIGINT NOT NULL"],
    "another column of the same type": ["ALTER TABLE shop.big DROP PRIMARY KEY, ADD PRIMARY KEY (v)"],
    "another name": ["ALTER TABLE shop.big RENAME COLUMN id TO number"],
    "another table": [
        "CREATE OR REPLACE TABLE shop.big (v INT, id VARCHAR(9) PRIMARY KEY)",
        "INSERT INTO shop.big (id, v) SELECT seq, seq FROM mysql.seq_1_to_700",
    ],
    "dropped and made": [
        "DROP TABLE shop.big",
        "CREATE TABLE shop.big (v INT NOT NULL UNIQUE, id DATE)",
        "INSERT INTO shop.big (v) SELECT seq FROM mysql.seq_1_to_700",
    ],
    "a copy": [
        "CREATE TABLE shop._big_gho (id BIGINT, v INT NOT NULL, PRIMARY KEY (v, id))",
        "INSERT INTO shop._big_gho SELECT id, v FROM shop.big",
        "RENAME TABLE shop.big TO shop._big_del, shop._big_gho TO shop.big",
        "DROP TABLE shop._big_del",
    ],
    "another type, and back": [
        "ALTER TABLE shop.big MODIFY id BIGINT NOT NULL",
        "UPDATE shop.big SET id = id + 50000 WHERE id BETWEEN 100 AND 120",
        "DELETE FROM shop.big WHERE id BETWEEN 20 AND 30",
        "ALTER TABLE shop.big MODIFY id INT NOT NULL",
    ],
    "another name, and back": [
        "ALTER TABLE shop.big RENAME COLUMN id TO number",
        "UPDATE shop.big SET number = number + 50000 WHERE number BETWEEN 100 AND 120",
        "DELETE FROM shop.big WHERE number BETWEEN 20 AND 30",
        "ALTER TABLE shop.big RENAME COLUMN number TO id",
    ],
    "no key": ["ALTER TABLE shop.big DROP PRIMARY KEY, DROP KEY v"],
}
_BEFORE = """
import pymysql
import streaming_source.mirroring.sink as sink

whole, done = sink.write_control, []

def altered(spark, control, rows, **more):
    rows = list(rows)
    begun = not done and any(row.name[1] == "big" and 0 < row.rows < {rows} for row in rows)
    if begun:
        done.append(True)
        with pymysql.connect(host={host!r}, port={port}, user="admin", password="admin", autocommit=True) as connection:
            for sql in {statements!r}:
                connection.cursor().execute(sql)
        if {broken}:
            raise RuntimeError("this batch is broken off")
    whole(spark, control, rows, **more)

sink.write_control = altered
"""
_AFTER = "import streaming_source.mirroring.sink as sink\nsink.write_control = whole\nresult = done"


def begun(mirrored: Callable[..., Mirrored], primary: MariaDb, **options: object) -> Mirrored:
    """Fill the shop, and make a mirror that has a part of its large table when a user would alter it."""
    fill_shop(primary, "side")
    primary.sql(
        "CREATE USER admin IDENTIFIED BY 'admin'",
        "GRANT ALL ON *.* TO admin",
        "CREATE TABLE shop.big (id INT PRIMARY KEY, v INT NOT NULL, UNIQUE KEY v (v))",
        f"INSERT INTO shop.big SELECT seq, {ROWS} - seq FROM mysql.seq_1_to_{ROWS}",
    )
    return mirrored(
        *(primary, "shop"),
        snapshotChunkRows=50,
        snapshotRowsPerSecond=40,  # the rest of the table is read behind the statements, on a busy machine too
        maxRowsPerTrigger=100,
        **options,
    )


def run_altered(mirror: Mirrored, statements: list[str], *, broken: bool = False) -> None:
    """Run a mirror, with statements behind the first batch that has a part of the large table; `broken`: that batch is
    not written down any more.
    """
    where = mirror.primary
    before = _BEFORE.format(rows=ROWS, host=where.host, port=where.port, statements=statements, broken=broken)
    ending = pytest.raises(AssertionError, match="this batch is broken off") if broken else nullcontext()
    try:
        with ending:
            mirror.run(before=before)
    finally:
        assert mirror.workbench.run(_AFTER) == [True]


@pytest.mark.parametrize("broken", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_with_another_key_begins_again_and_ends_equal(
    mirrored: Callable[..., Mirrored], change: str, *, broken: bool
) -> None:
    with MariaDb("11.8") as primary:
        mirror = begun(mirrored, primary, snapshotUnkeyed="whole")
        statements = [
            "UPDATE shop.big SET id = id + 100000 WHERE id BETWEEN 31 AND 50",  # an empty target would need no removal
            "DELETE FROM shop.big WHERE id BETWEEN 51 AND 60",
            *CHANGES[change],
            "UPDATE shop.big SET v = v + 100000 WHERE v BETWEEN 300 AND 340",
            "DELETE FROM shop.big WHERE v IN (350, 351, 699)",
            "INSERT INTO shop.side VALUES (100, 100)",
        ]
        run_altered(mirror, statements, broken=broken)
        mirror.run()
        assert mirror.states() == {"side": ("current", None), "big": ("current", None)}
        mirror.assert_equal("side", "big")
        assert mirror.times_made("big") > 1, "the rows that were delivered stay where the key is another one"
        primary.sql("UPDATE shop.big SET v = v + 200000 WHERE v < 400", "DELETE FROM shop.big WHERE v = 500")
        mirror.run()
        mirror.assert_equal("side", "big")


def test_a_table_that_has_no_key_any_more_is_set_aside_and_read_when_it_has_one(
    mirrored: Callable[..., Mirrored],
) -> None:
    with MariaDb("11.8") as primary:
        mirror = begun(mirrored, primary)
        run_altered(mirror, [*CHANGES["no key"], "INSERT INTO shop.side VALUES (100, 100)"])
        mirror.run()
        state, why = mirror.states()["big"]
        assert state == "failed"
        assert why is not None
        assert "shop.big has no key that its rows can be read by" in why
        assert mirror.states()["side"] == ("current", None)
        mirror.assert_equal("side")
        primary.sql("ALTER TABLE shop.big ADD PRIMARY KEY (id)", "DELETE FROM shop.big WHERE id < 20")
        mirror.run(resnapshot="shop.big@1")
        assert mirror.states()["big"] == ("current", None)
        mirror.assert_equal("side", "big")
