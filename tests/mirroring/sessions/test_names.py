"""Names that are close to each other: two for the server and for Spark, two for the server alone, names with dots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]

TABLES = (("shop", "straße"), ("shop", "strasse"), ("shop", "eu.t"), ("shop.eu", "t"))
LONG_S = "\u017f"
SEED, PAIRS, FRAMES = 20261129, 3000, 25
ASKED = """
import random
from streaming_source.schema.spark_names import spark_column_key

chance, java = random.Random({seed}), spark._jvm.org.apache.commons.lang3.StringUtils
root = spark._jvm.java.util.Locale.ROOT
characters = [chr(one) for one in range(0x21, 0x10000) if not 0xD800 <= one < 0xE000]
cased = [one for one in characters if one.isalpha() and (one.lower() != one.upper() or len(one.lower()) > 1)]


def other_case(letter):
    if chance.random() < 0.1:
        return chance.choice(cased)
    found = [one for one in (letter.upper(), letter.lower(), letter.title(), letter.casefold()) if len(one) == 1]
    return chance.choice([*found, letter])


def pair():
    one = [chance.choice(cased) for _ in range(chance.randint(1, 4))]
    return "".join(one), "".join(map(other_case, one))


wrong, counts = [], [0, 0]
for number in range({pairs}):
    one, other = pair()
    same = bool(java.equalsIgnoreCase(one, other)) or java.lowerCase(one, root) == java.lowerCase(other, root)
    counts[same] += 1
    if same and spark_column_key(one) != spark_column_key(other):
        wrong.append((one, other, "one for Java"))
taken = []
for number in range({frames}):
    one, other = pair()
    if one == other:
        continue
    if spark_column_key(one) == spark_column_key(other):
        continue
    frame = spark.range(1).selectExpr(f"1 AS `{{one}}`", f"2 AS `{{other}}`")
    taken.append(list(frame.select(f"`{{one}}`", f"`{{other}}`").first()) == [1, 2])
result = [wrong, counts, taken]
"""
NAMED = """
from streaming_source import mirror_resnapshot, mirror_tables
found = mirror_tables(spark, into={into!r})
result = sorted(found)
mirror_resnapshot(spark, into={into!r}, tables=["shop.`eu.t`", "`shop`.`straße`"])
"""


def quoted(name: tuple[str, str]) -> str:
    return ".".join(f"`{part}`" for part in name)


def assert_equal(mirror: Mirrored, folder: Path) -> None:
    for name in TABLES:
        rows = f"spark.read.format('delta').load('{folder}/{name[0]}/{name[1]}').drop('_x').collect()"
        target = mirror.workbench.run(f"result = sorted([[str(v) for v in r] for r in {rows}])")
        source = mirror.primary.sql(f"SELECT * FROM {quoted(name)}")
        assert target == sorted([str(value) for value in row] for row in source), name


@pytest.mark.slow
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
        states = mirror.states()
        assert {table: states[table] for _, table in TABLES} == {table: ("current", None) for _, table in TABLES}
        assert_equal(mirror, folder)
        primary.sql("CREATE TABLE shop.clash_2 LIKE shop.clash", "INSERT INTO shop.clash_2 VALUES (1, 2, 3)")
        for name in TABLES:
            primary.sql(
                f"UPDATE {quoted(name)} SET masse = 7 WHERE id = 1",
                f"ALTER TABLE {quoted(name)} ADD COLUMN größe INT DEFAULT 5, RENAME COLUMN MAßE TO weite",
                f"INSERT INTO {quoted(name)} VALUES (3, 30, 31, 32)",
            )
        mirror.run()
        assert_equal(mirror, folder)
        for table in ("clash", "clash_2"):
            state, error = mirror.states()[table]
            assert state == "failed"
            assert error is not None
            assert f"s and {LONG_S}, which the server distinguishes and Spark does not" in error
        found = mirror.workbench.run(NAMED.format(into=into))
        assert found == sorted(["shop.straße", "shop.strasse", "shop.`eu.t`", "`shop.eu`.t"])
        mirror.run()
        assert_equal(mirror, folder)


@pytest.mark.slow
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
        assert states.pop("strasse")[0] == "current"
        for table, (state, error) in states.items():
            assert state == "failed", table
            assert error, table


def test_names_that_spark_may_take_for_one_have_one_key(workbench: Workbench) -> None:
    wrong, (apart, same), taken = workbench.run(ASKED.format(seed=SEED, pairs=PAIRS, frames=FRAMES))
    assert wrong == []
    assert apart
    assert same
    assert all(taken)
