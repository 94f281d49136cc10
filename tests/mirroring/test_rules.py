"""Rules of a mirror's tables: what a target holds with them, over changes, statements and restarts."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server]

KEY = "0123456789abcdef0123456789abcdef"
RULES = {
    "shop.people": {
        "leaveOut": ["secret"],
        "mask": {"card": "xxxx", "pin": None},
        "hash": ["Email", "born", "price"],
        "where": "country = 'DE' AND length(secret) < 40",
        "rename": {"cust_nm": "customer_name", "email": "email_hash"},
    },
    "shop.letters": {"hash": ["email"]},
}


@pytest.fixture(scope="module")
def primary(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=NO_LOG") as running:
        running.add_user()
        yield running


@pytest.fixture
def shop(primary: MariaDb) -> Iterator[str]:
    primary.sql(
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        "CREATE TABLE people (id INT PRIMARY KEY, cust_nm VARCHAR(30) NOT NULL, secret VARCHAR(99), card CHAR(19)"
        " NOT NULL, pin INT NOT NULL, email VARCHAR(50), born DATETIME(3), price DECIMAL(12,8), country CHAR(2))",
        "CREATE TABLE letters (email VARCHAR(99) PRIMARY KEY, n INT)",
        "INSERT INTO people VALUES (1, 'ann', 'MARKER-1', 'MARKER-2', 4711, 'ann@x', '2001-02-03 04:05:06.700',"
        " 0.00000001, 'DE'), (2, 'bob', 'b', '', 0, NULL, NULL, NULL, 'FR'),"
        " (3, 'cé', 's', 'c', 1, 'cé@x', '2001-02-03', 12, 'DE')",
        "INSERT INTO letters VALUES ('ann@x', 1), ('bob@x', 2)",
    )
    yield "shop"
    primary.sql("DROP DATABASE shop")


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text(KEY + "\n", encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def hashed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def test_targets_hold_what_the_rules_leave_of_their_tables(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored], key_file: str
) -> None:
    mirror = mirrored(primary, shop, rules=RULES, hashKeyFile=key_file)
    mirror.run()
    fields = f"spark.table('{mirror.lake}.people').schema"
    about = mirror.workbench.run(f"result = [[f.name, f.dataType.simpleString(), f.nullable] for f in {fields}]")
    assert about == [
        ["id", "int", False],
        ["customer_name", "string", False],
        ["card", "string", False],
        ["pin", "int", True],
        ["email_hash", "string", True],
        ["born", "string", True],
        ["price", "string", True],
        ["country", "string", True],
    ]
    ann = ["1", "ann", "xxxx", None, hashed("ann@x"), hashed("2001-02-03 04:05:06.7"), hashed("0.00000001"), "DE"]
    ce = ["3", "cé", "xxxx", None, hashed("cé@x"), hashed("2001-02-03 00:00:00"), hashed("12.00000000"), "DE"]
    assert mirror.target("people") == [ann, ce]
    assert mirror.target("letters") == sorted([[hashed("ann@x"), "1"], [hashed("bob@x"), "2"]])
    primary.sql(
        "USE shop",
        "UPDATE people SET country = 'FR' WHERE id = 1",
        "UPDATE people SET country = 'DE', email = 'bob@x', cust_nm = 'rob' WHERE id = 2",
        "UPDATE people SET card = 'MARKER-3', secret = 'MARKER-4' WHERE id = 3",
        "INSERT INTO people SELECT id + 10, cust_nm, REPEAT('long', 20), card, pin, email, born, price, 'DE' "
        "FROM people",
        "INSERT INTO people SELECT id + 20, cust_nm, secret, card, pin, email, born, price, country FROM people "
        "WHERE id IN (1, 3)",
        "UPDATE people SET id = 30 WHERE id = 23",
        "UPDATE letters SET n = 3 WHERE email = 'ann@x'",
        "UPDATE letters SET email = 'new@x' WHERE email = 'bob@x'",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE letters SET n = 4 WHERE email = 'new@x'",
        "DELETE FROM people WHERE id = 30",
    )
    mirror.break_off()
    mirror.run()
    assert mirror.states() == {"people": ("current", None), "letters": ("current", None)}
    assert mirror.target("letters") == sorted([[hashed("ann@x"), "3"], [hashed("new@x"), "4"]])
    bob = ["2", "rob", "xxxx", None, hashed("bob@x"), None, None, "DE"]
    assert mirror.target("people") == [bob, ce]
