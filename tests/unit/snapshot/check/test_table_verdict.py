from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.snapshot.check.facts import Cascade
from replica.snapshot.check.table_verdict import (
    BYTES_A_SECOND,
    ROWS_A_SECOND,
    WHOLE_WARNED,
    InitialVerdict,
    describe_key,
    estimate,
    judge_table,
)
from tests.unit.snapshot.facts import column, index, listed, told

if TYPE_CHECKING:
    from replica.snapshot.check.facts import ListedTable, TableIndex

LATIN = {"charset": "latin1", "collation": "latin1_swedish_ci", "nullable": False}


def judged(*args: object, **more: object) -> InitialVerdict:
    table = listed(*args, **more)  # type: ignore[arg-type]
    return judge_table(table, told(table))


def test_a_table_with_a_key_is_read_by_it() -> None:
    verdict = judged(rows=1000, octets=65_536)
    assert (verdict.state, verdict.reasons, verdict.warnings) == ("read", (), ())
    assert verdict.key is not None
    assert (verdict.key.index, verdict.key.columns, verdict.key.ordered) == ("PRIMARY", (0,), True)
    assert (verdict.key_columns, verdict.rows, verdict.octets) == (("id",), 1000, 65_536)
    assert describe_key(verdict) == "its primary key (id)"


def test_the_estimate_is_what_takes_longer_of_rows_and_bytes() -> None:
    assert estimate(int(ROWS_A_SECOND) * 3, 0) == pytest.approx(3)
    assert estimate(1, int(BYTES_A_SECOND) * 5) == pytest.approx(5)


def test_a_text_key_is_read_as_a_whole_and_warned_of_where_that_is_much() -> None:
    columns = (column("code", "varchar", octets=20, **LATIN), column("n"))
    small, large = (judged("t", *columns, key=("code",), octets=octets) for octets in (WHOLE_WARNED - 1, WHOLE_WARNED))
    assert small.key is not None
    assert (small.key.ordered, small.warnings) == (False, ())
    assert (
        describe_key(small)
        == "its primary key (code), delivered as a whole (only the server knows the order of such keys)"
    )
    assert [one.check for one in large.warnings] == ["whole"]
    assert "delivered as a whole" in large.warnings[0].what


def test_a_unique_index_serves_where_there_is_no_primary_key() -> None:
    columns = (column("id", nullable=False), column("total", nullable=False))
    verdict = judged("t", *columns, key=(), indexes=(index("by_total", "total", "id"),))
    assert verdict.key is not None
    assert (verdict.key.index, verdict.key.columns) == ("by_total", (1, 0))
    assert describe_key(verdict) == "the unique index by_total (total, id)"


@pytest.mark.parametrize(
    ("engine", "what"),
    [
        ("MyISAM", "no consistent snapshots"),
        ("Aria", "no consistent snapshots"),
        ("MEMORY", "lost at a restart"),
        ("ARCHIVE", "nor keys"),
        ("CSV", "nor keys"),
        ("BLACKHOLE", "stores no rows"),
        ("Mroonga", "only InnoDB"),
    ],
)
def test_other_engines_are_refused_and_can_be_changed(engine: str, what: str) -> None:
    verdict = judged(engine=engine)
    assert (verdict.state, [one.check for one in verdict.reasons]) == ("refused", ["engine"])
    assert f"its engine is {engine}: " in verdict.reasons[0].what
    assert what in verdict.reasons[0].what
    assert "ALTER TABLE `shop`.`orders` ENGINE=InnoDB;" in verdict.reasons[0].fix


def test_rows_of_another_place_are_left_out() -> None:
    (reason,) = judged(engine="FEDERATED").reasons
    assert reason.what == "its engine is FEDERATED: this server does not store its rows"
    assert reason.fix == "leave it out (excludeTables=shop.orders)"


@pytest.mark.parametrize(
    ("indexes", "what", "fix"),
    [
        ((), "it has no primary key, and no unique index", "PRIMARY KEY"),
        ((index("PRIMARY", "f"),), "PRIMARY (f float) has values that no WHERE condition matches", "UNIQUE"),
        ((index("PRIMARY", "id", "f"),), "PRIMARY (id int, f float) has values", "UNIQUE"),
        ((index("u", "n"),), "u has the column n, which may be NULL", "PRIMARY KEY"),
        ((index("u", "id", prefix=True),), "u covers only a prefix of id", "PRIMARY KEY"),
        ((index("PRIMARY", "f"), index("u", "id", ignored=True)), "; u is IGNORED", "UNIQUE"),
        ((index("u", "id", kind="HASH"),), "u is a hash index", "PRIMARY KEY"),
        ((index("plain", "id", unique=False),), "it has no primary key, and no unique index", "PRIMARY KEY"),
    ],
)
def test_a_table_without_a_usable_key_is_refused_with_its_reason(
    indexes: tuple[TableIndex, ...], what: str, fix: str
) -> None:
    columns = (column("id", nullable=False), column("f", "float", nullable=False), column("n"))
    verdict = judged("t", *columns, key=(), indexes=indexes)
    (reason,) = verdict.reasons
    assert (verdict.state, reason.check, what in reason.what) == ("refused", "key", True), reason
    added = f"ADD COLUMN row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE {fix};"
    assert reason.fix.startswith(f"ALTER TABLE `shop`.`t` {added} (this copies the table) or ")
    assert reason.fix.endswith("(snapshotUnkeyed=whole)")


@pytest.mark.parametrize(
    "table", [listed(engine="MyISAM"), listed(engine="Aria"), listed(key=()), listed(indexes=(index("f", "total"),))]
)
def test_what_has_no_key_or_no_versions_is_read_as_a_whole_if_that_is_asked_for(table: ListedTable) -> None:
    assert judge_table(table, told(table)).state == "refused"
    verdict = judge_table(table, told(table), unkeyed=True)
    assert (verdict.state, verdict.key, verdict.reasons, describe_key(verdict)) == ("read", None, (), "")
    (warning,) = verdict.warnings
    assert (warning.check, "12 times at most" in warning.what) == ("unkeyed", True)
    assert ("no one can write to it" in warning.what) == (table.engine != "InnoDB")


def test_bytes_that_the_binlog_has_otherwise_are_not_compared() -> None:
    text = column("t", "text", column_type="text /*M!100301 COMPRESSED*/", charset="utf8mb4", octets=65_535)
    table = listed("t", text, key=())
    (reason,) = judge_table(table, told(table), unkeyed=True).reasons
    assert (reason.check, "t is COMPRESSED" in reason.what) == ("compressed", True)


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_a_table_of_another_engine_without_a_key_is_told_of_both(engine: str) -> None:
    first, second = judged(engine=engine, key=()).reasons
    assert (first.check, second.check) == ("engine", "key")
    assert "ADD COLUMN" in second.fix


@pytest.mark.parametrize("engine", ["MEMORY", "ARCHIVE", "CSV", "FEDERATED"])
def test_other_engines_are_refused_whatever_is_asked_for(engine: str) -> None:
    table = listed(engine=engine)
    assert judge_table(table, told(table), unkeyed=True).state == "refused"
    assert "snapshotUnkeyed" not in judge_table(table, told(table)).reasons[0].fix


def test_what_may_not_be_read_is_refused_with_the_grant_and_nothing_else() -> None:
    verdict = judged(readable=False, engine="MyISAM", indexes=())
    (reason,) = verdict.reasons
    assert reason.check == "select"
    assert reason.fix == "GRANT SELECT ON `shop`.`orders` TO 'repl'@'%';"


def test_a_column_that_cannot_be_decoded_is_named() -> None:
    verdict = judged("t", column("id", nullable=False), column("odd", "hypercube"))
    (reason,) = verdict.reasons
    assert reason.check == "column"
    assert "odd" in reason.what


def test_a_table_that_the_server_cannot_open_is_refused_with_its_words() -> None:
    (reason,) = judged(engine=None, fault="Got error 1877 from storage engine").reasons
    assert (reason.check, "error 1877" in reason.what) == ("broken", True)


def test_a_database_that_the_binlog_leaves_out_is_refused() -> None:
    table = listed()
    for variables, refused in (
        ({"binlog_do_db": "other"}, True),
        ({"binlog_ignore_db": "a,shop"}, True),
        ({"binlog_do_db": "shop", "binlog_ignore_db": "shop"}, False),
    ):
        verdict = judge_table(table, told(table, variables=variables))
        assert [one.check for one in verdict.reasons] == ["filter"] * refused


def test_a_sequence_is_left_out_unless_it_was_named() -> None:
    sequence = listed("numbers", type="SEQUENCE", key=())
    assert judge_table(sequence, told(sequence)).state == "left out"
    assert judge_table(sequence, told(sequence)).warnings[0].check == "sequence"
    named = judge_table(sequence, told(sequence, named=frozenset({sequence.name})))
    assert (named.state, named.reasons[0].check) == ("refused", "sequence")


def test_foreign_keys_that_change_rows_are_warned_of_by_name() -> None:
    cascade = Cascade("of_customer", ("crm", "customers"), ("ON DELETE CASCADE", "ON UPDATE SET NULL"))
    (warning,) = judged(cascades=(cascade,)).warnings
    assert warning.check == "cascade"
    assert "the foreign key of_customer (ON DELETE CASCADE, ON UPDATE SET NULL)" in warning.what
    assert "crm.customers" in warning.what
    (unknown,) = judged(cascades=None).warnings
    assert (unknown.check, "does not show" in unknown.what) == ("cascade", True)


def test_a_versioned_table_is_read_where_its_rows_of_the_past_can_be_told() -> None:
    assert judged(type="SYSTEM VERSIONED").state == "read"
    by_transactions = listed(
        "orders",
        column("id", nullable=False, key=True),
        column("a", "bigint", period="start"),
        column("b", "bigint", period="end"),
        type="SYSTEM VERSIONED",
    )
    for table, image, why in (
        (by_transactions, "FULL", "by transactions"),
        (listed(type="SYSTEM VERSIONED"), "NOBLOB", "leave out columns"),
    ):
        verdict = judge_table(table, told(variables={"binlog_row_image": image}))
        assert (verdict.state, [one.check for one in verdict.reasons]) == ("refused", ["versioned"])
        assert why in verdict.reasons[0].what


def test_generated_columns_are_left_out_where_images_of_updates_leave_them_out() -> None:
    columns = column("id", nullable=False), column("twice", computed=True, nullable=False)
    table = listed("t", *columns, indexes=(index("by_twice", "twice"), index("PRIMARY", "id")))
    assert judge_table(table, told(table)).warnings == ()
    newer = told(table, variables={"version": "11.8.9-MariaDB"})
    verdict = judge_table(table, newer)
    assert (verdict.state, verdict.without, verdict.key_columns) == ("read", ("twice",), ("id",))
    (warning,) = verdict.warnings
    assert warning.what.startswith("it is read without its generated columns (twice), which MariaDB 11.8.9-MariaDB")
    (reason,) = judge_table(listed("t", *columns, indexes=(index("by_twice", "twice"),)), newer).reasons
    assert reason.check == "key"
    partial = told(table, variables={"version": "11.8.9-MariaDB", "binlog_row_image": "NOBLOB"})
    assert [one.check for one in judge_table(table, partial).reasons] == ["computed"]
