"""The members of MERGE tables, as servers list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.handshake.login.login import ask
from streaming_source.mirroring.statements.merge_tables import MergeTables, members_of
from streaming_source.options.source_options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb

SHOWN = (
    "CREATE TABLE `m` (\n  `UNION` int(11) DEFAULT NULL COMMENT 'UNION=(x)'\n) ENGINE=MRG_MyISAM DEFAULT CHARSET=latin1"
)


@pytest.mark.parametrize(
    ("union", "expected"),
    [
        ("", ()),
        (" INSERT_METHOD=LAST UNION=(`a`,`b`)", (("shop", "a"), ("shop", "b"))),
        (" UNION=(`other`.`a.b`,`c``d`)", (("other", "a.b"), ("shop", "c`d"))),
        (" UNION=(plain)", (("shop", "plain"),)),
    ],
)
def test_members_are_those_of_the_last_union(union: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert members_of(SHOWN.replace("`UNION`", "`v`") + union, "shop") == expected


@pytest.mark.server
def test_a_server_is_asked_for_names_that_it_was_not_asked_for_lately(
    server_version: str, make_server: Callable[..., MariaDb], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(server_version)
    server.add_user()
    server.sql(
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE a (id INT NOT NULL, KEY (id)) ENGINE=MyISAM",
        "CREATE TABLE b LIKE a",
        "CREATE TABLE m (id INT NOT NULL, KEY (id)) ENGINE=MERGE UNION=(a, b) INSERT_METHOD=LAST",
        "CREATE TABLE x (id INT) ENGINE=InnoDB",
    )
    login = {"host": server.host, "port": str(server.port), "user": "repl", "password": "replica-secret"}
    merges = MergeTables(SourceOptions.parse({"tables": "shop.*", **login}))
    asked: list[object] = []
    monkeypatch.setattr(
        "streaming_source.mirroring.statements.merge_tables.ask",
        lambda *one: asked.append(one) or ask(*one),  # type: ignore[func-returns-value]
    )
    for _ in range(2):
        assert merges.members({("shop", "m"), ("shop", "x")}) == {("shop", "m"): (("shop", "a"), ("shop", "b"))}
    assert len(asked) == 1
    server.sql("USE shop", "CREATE TABLE i (id INT) ENGINE=InnoDB", "ALTER TABLE m UNION=(b)")
    found = merges.members({("shop", "m"), ("shop", "i")})
    assert found == {("shop", "m"): (("shop", "a"), ("shop", "b"))}, "rows may be of before the ALTER"
    assert len(asked) == 2
    assert merges.members({("shop", "m"), ("shop", "i")}) == {("shop", "m"): (("shop", "b"),)}
    assert len(asked) == 2


@pytest.mark.server
@pytest.mark.parametrize("statement", ["ALTER TABLE a ADD x INT", "ALTER TABLE b ENGINE=InnoDB", "DROP TABLE m"])
def test_all_that_may_be_members_are_if_the_server_cannot_tell(
    server_version: str, make_server: Callable[..., MariaDb], statement: str
) -> None:
    server = make_server(server_version)
    server.add_user()
    server.add_user("poor", "replica-secret", grants="REPLICATION SLAVE")
    server.sql(
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE a (id INT NOT NULL, KEY (id)) ENGINE=MyISAM",
        "CREATE TABLE b LIKE a",
        "CREATE TABLE c LIKE a",
        "CREATE TABLE i (id INT) ENGINE=InnoDB",
        "CREATE TABLE m (id INT NOT NULL, KEY (id)) ENGINE=MERGE UNION=(a, b) INSERT_METHOD=LAST",
        statement,
    )
    login = {"host": server.host, "port": str(server.port), "user": "repl", "password": "replica-secret"}
    merges = MergeTables(SourceOptions.parse({"tables": "shop.*", **login}))
    altered = [("shop", "b")]  # whatever its engine is now
    found = merges.members({("shop", "m"), ("shop", "i")}, altered)
    assert found == {("shop", "m"): (("shop", "a"), ("shop", "b"), ("shop", "c"))}
    hidden = MergeTables(SourceOptions.parse({"tables": "shop.*", **login, "user": "poor"}))
    assert hidden.members({("shop", "m"), ("shop", "i")}, altered) == {}, "hidden tables are no dropped ones"
