"""Names that are close to each other: two for the server and for Spark, two for the server alone, names with dots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]

TABLES = (("shop", "straße"), ("shop", "strasse"), ("shop", "eu.t"), ("shop.eu", "t"))
LONG_S = "\u017f"
NAMED = """
from streaming_source import mirror_resync, mirror_tables
found = mirror_tables(spark, into={into!r})
result = sorted(found)
mirror_resync(spark, into={into!r}, tables=["shop.`eu.t`", "`shop`.`straße`"])
"""


def quoted(name: tuple[str, str]) -> str:
    return ".".join(f"`{part}`" for part in name)


def assert_equal(mirror: Mirrored, folder: Path) -> None:
    for name in TABLES:
        rows = f"spark.read.format('delta').load('{folder}/{name[0]}/{name[1]}').drop('_x').collect()"
        target = mirror.workbench.run(f"result = sorted([[str(v) for v in r] for r in {rows}])")
        source = mirror.primary.sql(f"SELECT * FROM {quoted(name)}")
        assert target == sorted([str(value) for value in row] for row in source), name


def test_names_close_to_each_other(mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE DATABASE `shop.eu`")
        for number, name in enumerate(TABLES):
            primary.sql(
                f"CREATE TABLE {quoted(name)} (id INT PRIMARY KEY, maße INT, masse INT)",
                f"INSERT INTO {quoted(name)} VALUES (1, {number}, 10), (2, 2, {number})",
            )
        primary.sql(
            f"CREATE TABLE shop.clash (id INT PRIMARY KEY, s INT, {LONG_S} INT)",
            "INSERT INTO shop.clash VALUES (1, 2, 3)",
        )
        folder = tmp_path / "lake"
        into = f"{folder}/{{database}}/{{table}}"
        mirror = mirrored(primary, "shop", tables="shop.*,`shop.eu`.*", into=into)
        mirror.run()
        assert_equal(mirror, folder)
        state, error = mirror.states()["clash"]
        assert state == "failed"
        assert error is not None
        assert f"s and {LONG_S}" in error
        for name in TABLES:
            primary.sql(
                f"UPDATE {quoted(name)} SET masse = 7 WHERE id = 1",
                f"ALTER TABLE {quoted(name)} ADD COLUMN größe INT DEFAULT 5, RENAME COLUMN MAßE TO weite",
                f"INSERT INTO {quoted(name)} VALUES (3, 30, 31, 32)",
            )
        mirror.run()
        assert_equal(mirror, folder)
        found = mirror.workbench.run(NAMED.format(into=into))
        assert found == sorted(["shop.straße", "shop.strasse", "shop.`eu.t`", "`shop.eu`.t"])
        mirror.run()
        assert_equal(mirror, folder)


def test_a_catalog_says_which_names_it_takes(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE DATABASE `shop.eu`")
        for name in (("shop", "plain"), *TABLES):
            primary.sql(f"CREATE TABLE {quoted(name)} (id INT PRIMARY KEY)", f"INSERT INTO {quoted(name)} VALUES (1)")
        mirror = mirrored(primary, "shop", tables="shop.*,`shop.eu`.*")
        mirror.arguments["into"] = f"{mirror.lake}.{{database}}_{{table}}"
        mirror.run()
        states = mirror.states()
        assert states.pop("plain")[0] == "current"
        print(states)
