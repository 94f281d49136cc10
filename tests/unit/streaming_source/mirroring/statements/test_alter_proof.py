"""What is proved of ALTERs, on definitions alone; `test_alter_rows.py` compares proofs with rows of a server."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.definition.alter import read_alteration
from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import SchemaHistory
from replica.schema.statements.statements import read_statement
from replica.schema.table import ColumnSchema
from streaming_source.mirroring.statements.alter_proof import Kept, New, Proof, _keeps_values, proved

SESSION = StatementContext(database="shop")
TABLE = """CREATE TABLE t (
    id INT PRIMARY KEY, b BINARY(4), vb VARBINARY(4), d DOUBLE, m MEDIUMINT, um MEDIUMINT UNSIGNED, y YEAR(4),
    tm TIME, at DATETIME, ts TIMESTAMP NULL, c CHAR(5), v VARCHAR(5), txt TEXT, big DECIMAL(38,2), bits BIT(4),
    e ENUM('a','b') COLLATE utf8mb4_general_ci, s SET('a','A') COLLATE utf8mb4_bin, z DECIMAL(5,2) ZEROFILL
) CHARACTER SET utf8mb4"""


def proof(actions: str, table: str = TABLE, **known: list[str]) -> dict[str, Proof]:
    history = SchemaHistory()
    history.apply(table, SESSION)
    before = history.table("shop", "t")
    sql = f"ALTER TABLE t {actions}"
    statement = read_statement(sql, SESSION)
    assert before is not None
    assert statement is not None
    change = read_alteration(statement.tokens, SESSION)
    history.apply(sql, SESSION)
    after = history.table("shop", "t")
    assert after is not None, history.reason("shop", "t")
    return proved(before, after, change, **known)


@pytest.mark.parametrize(
    "actions",
    [
        *("MODIFY vb VARBINARY(9)", "MODIFY m INT", "MODIFY um INT", "MODIFY at DATETIME(3)", "MODIFY c CHAR(9)"),
        *("MODIFY ts TIMESTAMP(6) NULL", "MODIFY v VARCHAR(300)", "MODIFY big DECIMAL(44,2)", "MODIFY bits BIT(64)"),
        *("MODIFY e ENUM('a','b','c') COLLATE utf8mb4_general_ci", "MODIFY v VARCHAR(5) COLLATE utf8mb4_bin"),
        *(
            "MODIFY e ENUM('a','b','да') COLLATE utf8mb4_general_ci",
            "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, DROP e, DROP s",
        ),
        *("MODIFY d DOUBLE AFTER id", "MODIFY d DOUBLE DEFAULT 7", "MODIFY d DOUBLE COMMENT 'x' INVISIBLE", "FORCE"),
        *("ALTER d SET DEFAULT 5", "ALTER INDEX i IGNORED", "ADD INDEX (v)", "ADD CONSTRAINT k CHECK (id > 0)"),
        *("ENGINE=InnoDB", "ENGINE Aria", "AUTO_INCREMENT=7, COMMENT='x'", "DEFAULT CHARACTER SET latin1"),
        *("PARTITION BY HASH (id) PARTITIONS 4", "REMOVE PARTITIONING", "REORGANIZE PARTITION p INTO (PARTITION q)"),
        *("ALGORITHM=COPY, LOCK=NONE", "ORDER BY v", "DROP FOREIGN KEY IF EXISTS f", "ROW_FORMAT=DYNAMIC"),
        "RENAME COLUMN v TO c, RENAME COLUMN c TO v",
    ],
)
def test_every_value_stays(actions: str) -> None:
    assert all(isinstance(one, Kept) for one in proof(actions).values())


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ("MODIFY b BINARY(6)", "values of the column b"),
        ("MODIFY vb BINARY(4)", "values of the column vb"),
        ("MODIFY d DOUBLE(10,2)", "values of the column d"),
        ("MODIFY d FLOAT", "values of the column d"),
        ("MODIFY id MEDIUMINT", "values of the column id"),
        ("MODIFY um MEDIUMINT", "values of the column um"),
        ("MODIFY id BIGINT UNSIGNED", "values of the column id"),
        ("MODIFY y YEAR(2)", "values of the column y"),
        ("MODIFY tm TIME(3)", "values of the column tm"),
        ("MODIFY at DATETIME NOT NULL", "values of the column at"),
        ("MODIFY at TIMESTAMP NULL", "values of the column at"),
        ("MODIFY ts DATETIME", "values of the column ts"),
        ("MODIFY c VARCHAR(5)", "values of the column c"),
        ("MODIFY v CHAR(5)", "values of the column v"),
        ("MODIFY v VARCHAR(4)", "values of the column v"),
        ("MODIFY v VARCHAR(5) CHARACTER SET utf8", "values of the column v"),
        ("CONVERT TO CHARACTER SET latin1", "values of the column"),
        ("MODIFY big DECIMAL(40,3)", "values of the column big"),
        ("MODIFY z DECIMAL(7,2) ZEROFILL", "values of the column z"),
        ("MODIFY e ENUM('b','a') COLLATE utf8mb4_general_ci", "values of the column e"),
        ("MODIFY e ENUM('a','b','A') COLLATE utf8mb4_general_ci", "values of the column e"),
        ("MODIFY e ENUM('a','b') COLLATE utf8mb4_bin", "values of the column e"),
        ("MODIFY s SET('a','A','c') COLLATE utf8mb4_bin", "values of the column s"),
        ("MODIFY id INT AUTO_INCREMENT", "AUTO_INCREMENT"),
        ("MODIFY id SERIAL", "values of the column id|AUTO_INCREMENT"),
        ("MODIFY d DOUBLE AS (id) STORED", "generated column"),
        ("MODIFY d DOUBLE WITHOUT SYSTEM VERSIONING", "WITHOUT SYSTEM VERSIONING"),
        ("MODIFY d DOUBLE engine_word=1", "engine_word"),
        ("ADD SYSTEM VERSIONING", "system-versioned"),
        ("MODIFY v VARCHAR(9), DROP v", "changes the column v twice"),
        ("MODIFY v VARCHAR(9), RENAME COLUMN v TO w", "changes the column v twice"),
        ("CHANGE v w VARCHAR(9), DROP v", "changes the column v twice"),
        ("DROP PRIMARY KEY", "primary key"),
        ("RENAME COLUMN id TO i", "primary key"),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (v), CHANGE v id VARCHAR(5) NOT NULL, CHANGE id v INT",
            "primary key|values",
        ),
        ("ENGINE=BLACKHOLE", "ENGINE = BLACKHOLE"),
        ("ENGINE=MEMORY", "ENGINE = MEMORY"),
        ("ENGINE=InnoDB, UNION=(a, b)", "UNION"),
        ("PARTITION BY HASH (id) (PARTITION p ENGINE = BLACKHOLE)", "PARTITION BY"),
        ("REPAIR PARTITION ALL", "REPAIR PARTITION"),
        ("IMPORT TABLESPACE", "IMPORT TABLESPACE"),
        ("DISCARD TABLESPACE", "DISCARD TABLESPACE"),
        ("EXCHANGE PARTITION p WITH TABLE o", "EXCHANGE PARTITION"),
        ("FORCE NEWWORD", "FORCE NEWWORD"),
        ("NEWWORD", "NEWWORD"),
        ("NEWWORD = 7, ADD n INT", "NEWWORD"),
        ("ALTER v NEWWORD", "NEWWORD"),
    ],
)
def test_what_is_not_proved_is_a_reason(actions: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        proof(actions)


def test_a_column_that_was_auto_increment_stays_it() -> None:
    assert isinstance(proof("MODIFY id BIGINT AUTO_INCREMENT", numbered=["id"])["id"], Kept)


@pytest.mark.parametrize(
    ("actions", "stays"),
    [
        ("ADD n INT, DROP e", True),
        ("RENAME COLUMN v TO w, ADD INDEX (w)", True),
        ("MODIFY v VARCHAR(5) COLLATE utf8mb4_bin", False),
        ("MODIFY id BIGINT", False),
        ("MODIFY g VARCHAR(20)", False),
        ("DROP v, RENAME COLUMN c TO v", False),
        ("RENAME COLUMN v TO c, RENAME COLUMN c TO v", False),
        ("DROP v, ADD v VARCHAR(5)", False),
        ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", False),
    ],
)
def test_a_generated_column_may_be_computed_again_of_what_changes(actions: str, *, stays: bool) -> None:
    table = """CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5), c VARCHAR(5), e INT, g VARCHAR(20) AS (CONCAT(v, id)))
        CHARACTER SET utf8mb4"""
    try:
        found = proof(actions, table)
    except SchemaError:
        assert not stays
    else:
        assert stays
        assert isinstance(found["g"], Kept)


def test_a_column_may_have_the_older_name_of_its_character_set() -> None:
    """The catalog of a server before 10.6 calls utf8mb3 utf8."""
    older, newer = (
        ColumnSchema(name="v", data_type="varchar", column_type=f"varchar({length})", charset=charset)
        for length, charset in ((5, "utf8"), (9, "utf8mb3"))
    )
    assert _keeps_values(older, newer)


def test_new_columns_are_told_from_those_whose_names_they_take() -> None:
    found = proof("DROP v, RENAME COLUMN c TO v, ADD c INT")
    assert isinstance(found["v"], Kept)
    assert found["v"].old.name == "c"
    assert isinstance(found["c"], New)


@pytest.mark.parametrize("declared", ["DOUBLE(10,2)", "FLOAT(7,3)", "REAL(30,25)"])
@pytest.mark.parametrize("actions", ["FORCE", "MODIFY id BIGINT", "ADD n INT", "DROP v"])
def test_values_that_an_alter_left_with_more_digits_are_cut_by_the_next_one(declared: str, actions: str) -> None:
    with pytest.raises(SchemaError, match="cut values of v"):
        proof(actions, f"CREATE TABLE t (id INT PRIMARY KEY, v {declared}, w INT)")
