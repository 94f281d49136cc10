"""Rules of a mirror's tables: what a target holds with them, over changes, statements and restarts."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.conftest import spark_settings
from tests.mirroring.mirrors import Mirrored
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_rules_that_cannot_be_or_have_changed_are_refused_and_statements_on_their_columns_set_the_table_aside(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored], key_file: str, tmp_path: Path
) -> None:
    def refused(message: str, rules: dict[str, object], **more: object) -> None:
        with pytest.raises(AssertionError, match=f"ConfigError: .*{message}"):
            mirror.run(rules=rules, **more)

    mirror = mirrored(primary, shop, rules=RULES, hashKeyFile=key_file)
    people = "the rule of shop.people "
    refused(
        f"{people}names the column secrets, which the table does not have. Did you mean secret",
        _people(leaveOut=["secrets"]),
    )
    refused(f"{people}leaves out or masks id, which belongs to the key", _people(leaveOut=["ID"]))
    refused(f"{people}gives the columns card and pin the same name, card", _people(rename={"pin": "card"}))
    refused(f"{people}masks pin with 'none', which is not of the type INT", _people(mask={"pin": "none"}))
    refused("shop.person applies to no table", {"shop.person": {"leaveOut": ["secret"]}})
    refused("the filter of shop.people, contry = 1, is not understood", _people(where="contry = 1"))
    refused("the filter of shop.people, id, is not a condition but of type int", _people(where="id"))
    refused("depends on more than the row", _people(where="born < current_timestamp()"))
    refused("depends on more than the row", _people(where="rand() < 0.5"))
    refused("depends on more than the row", _people(where="id = (SELECT max(id) FROM VALUES (1) AS t(id))"))
    mirror.run()
    refused(
        "the rules differ from those with which the targets of shop.people", {"shop.letters": RULES["shop.letters"]}
    )
    other = tmp_path / "other"
    other.write_text("k" * 32, encoding="utf-8")
    other.chmod(0o600)
    refused("hashKeyFile has another key than the one with which the targets of", RULES, hashKeyFile=str(other))
    primary.sql(
        "USE shop",
        "INSERT INTO people VALUES (40, 'cé', 's', 'c', 1, 'cé@x', '2001-02-03', 12, 'DE')",
        "ALTER TABLE people ADD COLUMN note TEXT, DROP COLUMN country, ADD COLUMN country VARCHAR(9)",
    )
    mirror.run()
    state, error = mirror.states()["people"]
    assert state == "failed"
    assert "it puts another column in the place of country, and the table has a rule" in str(error)
    primary.sql("USE shop", "UPDATE people SET country = 'DE', note = 'n'")
    rules = RULES | {"shop.people": RULES["shop.people"] | {"leaveOut": ["secret", "note"]}}
    mirror.run(rules=rules, resnapshot="shop.people@first")
    assert mirror.states()["people"] == ("current", None)
    assert [row[0] for row in mirror.target("people")] == ["1", "2", "3", "40"]
    primary.sql("USE shop", "ALTER TABLE people RENAME COLUMN email TO mail", "UPDATE people SET mail = 'MARKER'")
    mirror.run(rules=rules, resnapshot="shop.people@first")
    state, error = mirror.states()["people"]
    assert state == "failed"
    assert "the rule of shop.people names the column Email, which the table does not have" in str(error)
    assert "MARKER" not in str(mirror.target("people"))


def _people(**rule: object) -> dict[str, object]:
    return {"shop.people": rule}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_hidden_is_in_no_file_of_the_mirror_and_in_no_line_of_its_log(
    server_version: str, tmp_path: Path, key_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    plain = {f"spark.{what}.compress": "false" for what in ("shuffle", "shuffle.spill", "rdd", "broadcast")}
    settings = spark_settings(folder) | plain | {"spark.local.dir": str(folder / "local")}
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary, Workbench(settings, folder, {}) as bench:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE a (id INT PRIMARY KEY, secret TEXT, card VARCHAR(40), email VARCHAR(40), note VARCHAR(40))",
            "CREATE TABLE b LIKE a",
            "INSERT INTO a SELECT seq, 'MARKER', 'MARKER', CONCAT('MARKER', seq), 'shown-1' FROM seq_1_to_3000",
            "INSERT INTO b SELECT * FROM a",
        )
        rule = {"leaveOut": ["secret"], "mask": {"card": "x"}, "hash": ["email"], "where": "secret NOT LIKE '%-out'"}
        mirror = Mirrored(bench, primary, "shop", tmp_path, {"rules": {"shop.*": rule}, "hashKeyFile": key_file})
        mirror.run()
        bench.run(f"spark.sql('ALTER TABLE {mirror.lake}.b ADD CONSTRAINT few CHECK (id < 4000)')")
        primary.sql(
            "USE shop",
            "UPDATE a SET secret = 'MARKER-out' WHERE id < 5",
            "UPDATE a SET card = 'MARKER-2', email = 'MARKER-2', note = 'shown-2' WHERE id BETWEEN 5 AND 1000",
            "DELETE FROM a WHERE id > 2900",
            "INSERT INTO a VALUES (5000, 'MARKER', 'MARKER', 'MARKER', 'shown-3')",
            "INSERT INTO b SELECT * FROM a WHERE id = 5000",
        )
        mirror.break_off()
        mirror.run()
        states = mirror.states()
        assert states["a"] == ("current", None)
        assert states["b"][0] == "failed"
        assert len(mirror.target("a")) == 2900 - 4 + 1
        found = [str(path) for path in tmp_path.rglob("*") if b"MARKER" in _content(path)]
        shown = [path for path in tmp_path.rglob("*.parquet") if b"shown-" in _content(path)]
    assert shown
    relay = str(tmp_path / "relay")
    assert [path for path in found if not path.startswith(relay)] == []
    assert any(path.startswith(relay) for path in found)  # the server's own bytes
    log = "".join(capfd.readouterr())
    assert "b is suspended" in log
    assert "MARKER" not in log


def _content(path: Path) -> bytes:
    """The bytes of a file, and all values of one of Parquet, whose pages are compressed."""
    if not path.is_file():
        return b""
    if path.suffix == ".parquet":
        return path.read_bytes() + str(parquet.read_table(path).to_pydict()).encode()
    return path.read_bytes()


@pytest.mark.slow
def test_a_table_that_was_altered_before_the_mirror_looked_at_it_is_read_by_its_rule(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, shop, rules={"shop.p*": {"leaveOut": ["secret"]}})
    mirror.run()
    primary.sql(
        "USE shop",
        "CREATE TABLE pets (id INT PRIMARY KEY, secret TEXT, v INT)",
        "INSERT INTO pets VALUES (1, 'MARKER', 1)",
        "ALTER TABLE pets DROP v, ADD v TEXT, ADD w INT",
        "INSERT INTO pets VALUES (2, 'MARKER', 'x', 2)",
    )
    mirror.run()
    assert mirror.states()["pets"] == ("current", None)
    assert mirror.target("pets") == [["1", None, None], ["2", "x", "2"]]
