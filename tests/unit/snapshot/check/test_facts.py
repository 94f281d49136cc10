from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ServerError
from replica.snapshot.check.facts import MOST_SHOWN, Cascade, TableFacts, ask_table_facts
from tests.unit.handshake.steps import converse
from tests.unit.snapshot.facts import index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.handshake.registration import Rows

DENIED = ServerError("SELECT command denied", code=1142)
ABSENT = ServerError("no such table", code=1146)
NO_NAME = "no table is called like this"
CHILD = "CREATE TABLE `b` (\n  CONSTRAINT `c` FOREIGN KEY (`x`) REFERENCES `a` (`id`) ON DELETE CASCADE\n)"
COLUMN = ("id", "int", "int(11)", "NO", None, None, None, "10", "0", None, "", None, "BASE TABLE", None)
ANSWERS: dict[str, Rows | ServerError] = {
    "SELECT CURRENT_USER()": [("repl@%",)],
    "SHOW SESSION VARIABLES": [("tx_isolation", "REPEATABLE-READ")],
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_do_db'": [("log_bin", "ON"), ("Binlog_Format", "ROW")],
    "SHOW GLOBAL VARIABLES": [("expire_logs_days", "2")],
    "SHOW GLOBAL STATUS": [("Slaves_running", "1")],
    "SELECT @@GLOBAL.gtid_slave_pos": [("0-1-2",)],
    "SELECT TIMESTAMPDIFF": [("1800000000000000", "0-1-100", "1")],
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [
        ("shop", "b", "BASE TABLE", "InnoDB", "1000", "65536", ""),
        ("shop", "a", "BASE TABLE", "MyISAM", None, None, ""),
        ("shop", "s", "SEQUENCE", "InnoDB", "1", "16384", ""),
        ("shop", "v", "VIEW", None, None, None, "VIEW"),
    ],
    "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME": [("shop", "b", *COLUMN)],
    "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.INDEX_NAME": [("shop", "b", "PRIMARY", "id")],
    "SELECT s.*": [("def", "shop", "b", "0", "shop", "PRIMARY", "1", "id", "A", "0", None, None, "", "BTREE", "", "")],
    "SHOW CREATE TABLE `shop`.`b`": [("b", CHILD)],
}


def asked(patterns: Sequence[str], **more: Rows | ServerError) -> tuple[list[str | bytes], TableFacts]:
    answers = more | {key: answer for key, answer in ANSWERS.items() if key not in more}  # the first that fits counts
    return converse(ask_table_facts(patterns, lambda _database, table: table != "skipped"), answers)


def test_everything_is_read_of_tables_in_the_order_of_their_names() -> None:
    said, facts = asked(["shop.*"])
    assert [one.name for one in facts.tables] == [("shop", name) for name in "absv"]
    b = facts.tables[1]
    assert (b.engine, b.rows, b.octets, b.readable) == ("InnoDB", 1000, 65_536, True)
    assert b.indexes == (index("PRIMARY", "id"),)
    assert b.schema is not None
    assert b.schema.primary_key == (0,)
    assert b.cascades == (Cascade("c", ("shop", "a"), ("ON DELETE CASCADE",), ("x",), ("id",)),)
    assert (facts.account, facts.replicates_from, facts.was_replica) == ("repl@%", 1, True)
    assert (facts.expiry_s, facts.isolation, facts.repeatable) == (2 * 86_400.0, "REPEATABLE-READ", True)
    assert facts.variables == {"log_bin": "ON", "binlog_format": "ROW"}
    # Of all these only the one table that could be read and cascade is asked for its definition.
    assert [one for one in said if str(one).startswith("SHOW CREATE")] == ["SHOW CREATE TABLE `shop`.`b`"]
    assert said.index("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ") < said.index(
        "SHOW CREATE TABLE `shop`.`b`"
    )


def test_tables_are_asked_for_one_by_one_where_not_all_may_be_read() -> None:
    whole = f"SELECT * FROM `shop`.`{NO_NAME}`"
    said, facts = asked(["shop.*"], **{whole: DENIED, "SELECT * FROM `shop`.`b`": DENIED})
    assert {one.name[1]: one.readable for one in facts.tables} == {"a": True, "b": False, "s": True, "v": True}
    assert facts.hiding == ("shop.*",)
    assert not any(str(one).startswith("SHOW CREATE") for one in said)
    said, facts = asked(["shop.*"], **{whole: ABSENT})
    assert (facts.hiding, sum(str(one).startswith("SELECT * FROM") for one in said)) == ((), 1)


def test_tables_that_were_named_are_told_from_those_that_a_pattern_took_in() -> None:
    answers = {"SELECT * FROM `shop`.`gone`": ABSENT, "SELECT * FROM `crm`.`secret`": DENIED}
    _, facts = asked(["shop.b", "shop.gone", "crm.secret", "crm.skipped"], **answers)
    assert facts.named == {("shop", "b")}
    assert facts.unseen == ((("shop", "gone"), "absent"), (("crm", "secret"), "denied"))


def test_a_pattern_over_all_databases_hides_what_the_account_may_not_see() -> None:
    said, facts = asked(["*.*"], **{f"SELECT * FROM `{NO_NAME}`": DENIED})
    assert facts.hiding == ("*.*",)
    assert "NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')" in next(
        str(one) for one in said if "TABLE_TYPE, ENGINE" in str(one)
    )


def test_the_number_of_questions_is_bounded() -> None:
    many = [("shop", f"t{number}", "BASE TABLE", "InnoDB", "1", "1", "") for number in range(MOST_SHOWN + 10)]
    said, facts = asked(["shop.*"], **{"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": many})
    assert sum(str(one).startswith("SHOW CREATE") for one in said) == MOST_SHOWN
    assert sum(one.cascades is None for one in facts.tables) >= 10
    assert len(said) < MOST_SHOWN + 30


def test_a_level_that_cannot_be_set_is_noticed() -> None:
    _, facts = asked(["shop.*"], **{"SHOW SESSION VARIABLES": [("tx_isolation", "READ-COMMITTED")]})
    assert (facts.isolation, facts.repeatable) == ("READ-COMMITTED", False)
