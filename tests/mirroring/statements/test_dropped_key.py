"""Tables that have a unique index for their key, and lose it: they are read again by another one, or suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = ("dropped", "loosened", "bare")


def test_rows_that_the_old_key_would_take_for_one_are_all_there(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for table in TABLES:
            primary.sql(
                "USE shop",
                f"CREATE TABLE {table} (code INT NOT NULL, v INT NOT NULL, UNIQUE k (code))",
                f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
            )
        for table, other in (("labelled", "UNIQUE other (v)"), ("alone", "KEY other (v)")):
            primary.sql(
                "USE shop",
                f"CREATE TABLE {table} (kind ENUM('a') NOT NULL, v INT NOT NULL, UNIQUE k (kind), {other})",
                f"INSERT INTO {table} VALUES ('a', 1)",
            )
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql(
            "USE shop",
            "ALTER TABLE dropped ADD UNIQUE KEY other (v)",
            "DROP INDEX k ON dropped",
            "INSERT INTO dropped VALUES (1, 3), (1, 4)",
            "ALTER TABLE loosened ADD UNIQUE KEY other (v), MODIFY code INT",
            "INSERT INTO loosened VALUES (NULL, 3), (NULL, 4)",
            "ALTER TABLE bare DROP KEY k",
            "INSERT INTO bare VALUES (1, 1)",
            "SET sql_mode = ''",
            "ALTER TABLE labelled MODIFY kind ENUM('a', '') NOT NULL",
            "INSERT INTO labelled VALUES ('', 2), ('no label', 3)",
            "ALTER TABLE alone MODIFY kind ENUM('a', '') NOT NULL",
        )
        mirror.run()
        mirror.assert_equal("dropped", "loosened", "labelled")
        states = mirror.states()
        assert states["dropped"] == states["loosened"] == states["labelled"] == ("current", None)
        state, error = states["bare"]
        assert state == "failed"
        assert "no primary key" in str(error)
        state, error = states["alone"]
        assert state == "failed"
        assert "no primary key" in str(error)
        assert "except one with kind" in str(error)
