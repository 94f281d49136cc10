"""The rules for names against each server: every character that a name may hold, and random names."""

from __future__ import annotations

import contextlib
import random
import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from replica.protocol.events.statement_events import QueryEvent
from replica.schema.catalog import columns_query, keys_query, read_catalog
from replica.schema.definition.session import ServerRules
from replica.schema.text.naming import COMPARED_BY_UPPER_CASE, column_key, lowered
from tests.integration.schema.ddl_following import Follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server
SEED, PAIRS, TABLES = 20261129, 100, 60
DUPLICATE_COLUMN = 1060
CHARACTERS = [chr(one) for one in range(0x21, 0x10000) if not 0xD800 <= one < 0xE000]
LETTERS = [one for one in CHARACTERS if one.isalpha()]
WITH_CASE = [one for one in LETTERS if one.lower() != one.upper()]


def version_of(server: MariaDb) -> int:
    major, minor, patch = str(server.value("SELECT VERSION()")).split("-")[0].split(".")
    return int(major) * 10_000 + int(minor) * 100 + int(patch)


def asked(server: MariaDb, function: str) -> Iterator[tuple[str, str]]:
    """Yield each character with what the server makes of it."""
    with server.connect() as connection, connection.cursor() as cursor:
        for first in range(0, len(CHARACTERS), 1000):
            some = CHARACTERS[first : first + 1000]
            texts = ", ".join(function.format(f"CONVERT(_ucs2 0x{ord(one):04X} USING utf8mb3)") for one in some)
            cursor.execute(f"SELECT {texts}")
            yield from zip(some, cursor.fetchone() or (), strict=True)


def classes(keys: Iterator[tuple[str, str]]) -> list[list[str]]:
    found = defaultdict(list)
    for one, key in keys:
        found[key].append(one)
    return sorted(found.values())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def are_one(cursor: Any, one: str, other: str) -> bool:
    try:
        cursor.execute(f"CREATE OR REPLACE TABLE names.pair ({quoted(one)} BIT, {quoted(other)} BIT)")
    except pymysql.err.OperationalError as error:
        if error.args[0] != DUPLICATE_COLUMN:
            raise
        return True
    return False


def variants(of: str) -> list[str]:
    """Other characters that some rule takes for this one."""
    plain = unicodedata.normalize("NFKD", of)[0]
    found = {of.upper(), of.lower(), of.title(), of.casefold(), of.swapcase(), plain, plain.lower()}
    return sorted(one for one in found if len(one) == 1 and "!" < one < "\U00010000" and one != "`")


def test_the_server_lowers_each_character_as_we_do(server: MariaDb) -> None:
    for one, lower in asked(server, "LOWER({} COLLATE utf8mb3_general_ci)"):
        assert lowered(one) == lower


def test_the_server_compares_each_character_as_we_do(server: MariaDb) -> None:
    version = version_of(server)
    by_version = "WEIGHT_STRING({} COLLATE utf8mb3_general1400_as_ci)"
    function = by_version if version >= COMPARED_BY_UPPER_CASE else "LOWER({} COLLATE utf8mb3_general_ci)"
    ours = classes((one, column_key(one, version)) for one in CHARACTERS)
    assert ours == classes(asked(server, f"HEX({function})"))


@pytest.mark.slow  # 6000 tables
def test_each_character_is_a_column_of_its_own_or_another_one(server: MariaDb) -> None:
    version = version_of(server)
    server.sql("CREATE OR REPLACE DATABASE names")
    ours = classes((one, column_key(one, version)) for one in CHARACTERS)
    with server.connect() as connection, connection.cursor() as cursor:
        for same in ours:
            assert all(are_one(cursor, same[0], other) for other in same[1:])
        for one in CHARACTERS:
            for other in variants(one):
                if other != one:
                    assert are_one(cursor, one, other) is (column_key(one, version) == column_key(other, version))


def random_names(chance: random.Random) -> tuple[str, str]:
    """A name, and one that differs from it in some characters that some rule takes for the same."""
    one = [chance.choice(WITH_CASE if chance.random() < 0.8 else LETTERS) for _ in range(chance.randint(1, 6))]
    other = [chance.choice(variants(c)) if chance.random() < 0.6 else c for c in one]
    return "".join(one), "".join(other)


def test_random_names_of_columns_are_one_as_the_server_says(server: MariaDb) -> None:
    version, chance = version_of(server), random.Random(SEED)
    server.sql("CREATE OR REPLACE DATABASE names")
    with server.connect() as connection, connection.cursor() as cursor:
        found = set()
        for _ in range(PAIRS):
            one, other = random_names(chance)
            same = are_one(cursor, one, other)
            assert (column_key(one, version) == column_key(other, version)) is same, (one, other)
            found.add(same)
    assert found == {True, False}


def test_random_names_of_tables_are_stored_in_lower_case(
    server_version: str, make_server: Callable[..., MariaDb]
) -> None:
    chance = random.Random(SEED)
    server = make_server(server_version, "--lower-case-table-names=1")
    server.sql("CREATE DATABASE names")
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(TABLES):
            one, other = random_names(chance)
            cursor.execute(f"CREATE OR REPLACE TABLE names.{quoted(one)} (i INT)")
            cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'names'")
            assert cursor.fetchall() == ((lowered(one),),)
            try:
                cursor.execute(f"SELECT 1 FROM names.{quoted(other)}")
                found = True
            except pymysql.err.ProgrammingError:
                found = False
            assert found is (lowered(one) == lowered(other)), (one, other)
            cursor.execute(f"DROP TABLE names.{quoted(one)}")


CLOSE_TABLES = ("cafe", "café", "CAFE", "straße", "strasse", "tisch", "Tisch", "\u0131", "i", "Ÿ", "y")


@pytest.mark.parametrize("selection", [[("names", None)], [("names", None), ("NAMES", None)], [("names", "cafe")], []])
def test_the_catalog_has_each_of_tables_close_to_each_other(server: MariaDb, selection: list[Any]) -> None:
    """information_schema compares names without case and accents."""
    server.sql(*(f"CREATE OR REPLACE DATABASE {database}" for database in ("names", "NAMES", "námes")))
    for number, table in enumerate(CLOSE_TABLES):
        for database in ("names", "NAMES", "námes"):
            key = f"{database[0]}{number}"
            server.sql(f"CREATE TABLE {database}.{quoted(table)} ({key} INT, v INT, PRIMARY KEY ({key}))")
    columns, keys = columns_query(selection), keys_query(selection)
    found = read_catalog(server.sql(columns[0], args=columns[1]), server.sql(keys[0], args=keys[1]))
    for number, table in enumerate(CLOSE_TABLES if selection != [("names", "cafe")] else ["cafe"]):
        told = found["names", table]
        assert ([column.name for column in told.columns], told.primary_key) == ([f"n{number}", "v"], (0,)), table
    for database in ("NAMES", "námes"):
        server.sql(f"DROP DATABASE {database}")


NAMES = (*"sSkiIeéÉςΣµ", "maße", "masse", "MASSE", "\u017f", "\u212a", "İ", "\u0131", "\u03c3", "\u03bc")
STATEMENTS = 120


def test_random_alters_of_names_close_to_each_other_are_followed(server: MariaDb) -> None:
    """Columns, and an index over one of them, by names that some rule takes for others."""
    chance, rules = random.Random(SEED), ServerRules.of(str(server.value("SELECT VERSION()")), lower_case=False)
    server.sql("CREATE OR REPLACE DATABASE names")
    done = 0
    with Follower(server) as follower:
        follower.run("CREATE TABLE names.t (id INT PRIMARY KEY)")
        for number in range(STATEMENTS):
            one, other = chance.sample(NAMES, 2)
            action = chance.choice(
                (
                    f"ADD COLUMN IF NOT EXISTS `{one}` INT DEFAULT {number}",
                    f"ADD COLUMN `{one}` VARCHAR({number + 1})",
                    f"RENAME COLUMN `{one}` TO `{other}`",
                    f"CHANGE `{one}` `{other}` BIGINT",
                    f"MODIFY COLUMN IF EXISTS `{one}` CHAR({number + 1}) AFTER `{other}`",
                    f"DROP COLUMN IF EXISTS `{one}`",
                    f"DROP PRIMARY KEY, ADD PRIMARY KEY (`{one}`)",
                )
            )
            with contextlib.suppress(pymysql.err.MySQLError):  # most name no column, or one that is there
                follower.session.cursor().execute(f"ALTER TABLE names.t {action}")
                done += 1
            events = [event for event in follower.events() if isinstance(event, QueryEvent)]
            assert [follower.resolver.apply(event, server=rules).reason for event in events] == [""] * len(events), (
                action
            )
            follower.assert_equal()
    assert done > STATEMENTS // 4
