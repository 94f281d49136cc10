"""ALTER TABLE, action by action and several at once."""

from __future__ import annotations

import pytest

from replica.schema.definition.session import StatementContext
from tests.unit.schema.ddl import history, refusal, table

BASE = "a INT, b TEXT CHARACTER SET latin1, c ENUM('x') NOT NULL, PRIMARY KEY (a), UNIQUE u (c)"


def names(*alters: str) -> str:
    return " ".join(column.name for column in table(BASE, "", *alters).columns)


@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        ("ADD d INT", "a b c d"),
        ("ADD COLUMN d INT FIRST", "d a b c"),
        ("ADD d INT AFTER a, ADD e INT AFTER d", "a d e b c"),
        ("ADD (d INT, e INT, KEY (d))", "a b c d e"),
        ("ADD IF NOT EXISTS A INT, ADD COLUMN IF NOT EXISTS d INT", "a b c d"),
        ("DROP b", "a c"),
        ("DROP COLUMN B CASCADE, DROP COLUMN IF EXISTS z", "a c"),
        ("DROP b, ADD b INT FIRST", "b a c"),
        ("MODIFY c INT FIRST", "c a b"),
        ("MODIFY a INT AFTER c, MODIFY c INT FIRST", "c b a"),
        ("MODIFY IF EXISTS z INT, CHANGE COLUMN IF EXISTS y x INT", "a b c"),
        ("CHANGE a z INT", "z b c"),
        ("CHANGE a b INT, CHANGE b a INT", "b a c"),
        ("CHANGE COLUMN a z INT AFTER c", "b c z"),
        ("RENAME COLUMN a TO z, ADD y INT AFTER z", "z y b c"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b a c"),
        ("DROP PRIMARY KEY, DROP KEY IF EXISTS u, DROP CONSTRAINT k, DROP FOREIGN KEY fk", "a b c"),
        (
            "ADD KEY (b(5)), ADD CONSTRAINT FOREIGN KEY (a) REFERENCES o (id), ADD FULLTEXT (b), ADD CHECK (a > 0)",
            "a b c",
        ),
        ("ADD SPATIAL INDEX (b), ADD UNIQUE IF NOT EXISTS (a) COMMENT 'x', DROP d", None),
        ("ALTER a SET DEFAULT (1, 2), ALTER COLUMN b DROP DEFAULT, ALTER INDEX u IGNORED", "a b c"),
        ("DISABLE KEYS, ENABLE KEYS, FORCE, ALGORITHM=INPLACE, LOCK NONE", "a b c"),
        ("ENGINE=Aria COMMENT='x, ADD y INT', AUTO_INCREMENT=5", "a b c"),
        ("ORDER BY a DESC, b", "a b c"),
        (
            "ADD d INT PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (5), PARTITION q VALUES LESS THAN (7))",
            "a b c d",
        ),
        ("REMOVE PARTITIONING", "a b c"),
        ("DROP PARTITION p, ADD d INT", "a b c d"),
        ("REORGANIZE PARTITION p, q INTO (PARTITION r VALUES LESS THAN (5))", "a b c"),
        ("EXCHANGE PARTITION p WITH TABLE o WITHOUT VALIDATION", "a b c"),
        ("DISCARD TABLESPACE", "a b c"),
    ],
)
def test_columns_after_an_alter(alter: str, expected: str | None) -> None:
    if expected is None:
        assert "no column d" in refusal(BASE, "", alter)
    else:
        assert names(alter) == expected


@pytest.mark.parametrize(
    "alter",
    [
        "DROP z",
        "MODIFY z INT",
        "CHANGE z y INT",
        "RENAME COLUMN z TO y",
        "ADD d INT AFTER z",
        "ADD A INT",
        "RENAME COLUMN a TO b",
    ],
)
def test_an_alter_that_does_not_fit_makes_the_table_unknown(alter: str) -> None:
    assert "its ALTER was not understood" in refusal(BASE, "", alter)
    assert names("ADD z INT FIRST", "RENAME COLUMN z TO y") == "y a b c"


def test_unknown_until_it_is_created_again() -> None:
    made = history(
        "CREATE TABLE t (a INT)", "ALTER TABLE t ADD b WEIRD", "ALTER TABLE t ADD c INT", "RENAME TABLE t TO u"
    )
    assert "type WEIRD" in made.reason("d", "u")
    made.apply("CREATE TABLE u (a INT)", StatementContext(database="d"))
    assert made.table("d", "u") is not None


def test_keys_follow_their_columns() -> None:
    assert table(BASE, "", "CHANGE a z BIGINT AFTER c").primary_key == (2,)
    assert table(BASE, "", "RENAME COLUMN a TO z").primary_key == (0,)
    assert table(BASE, "", "DROP PRIMARY KEY").primary_key == ()
    assert not table(BASE, "", "DROP PRIMARY KEY").columns[0].nullable
    assert table(BASE, "", "DROP PRIMARY KEY, ADD PRIMARY KEY (c, a)").primary_key == (2, 0)
    assert table(BASE, "", "DROP a").primary_key == ()
    assert table(BASE, "", "ADD COLUMN IF NOT EXISTS c INT PRIMARY KEY").primary_key == (0,)
    assert table("a INT", "", "ADD COLUMN IF NOT EXISTS a INT PRIMARY KEY").primary_key == (0,)
    assert table("a INT PRIMARY KEY", "", "DROP PRIMARY KEY, ADD b INT PRIMARY KEY").primary_key == (1,)


def test_character_sets() -> None:
    def sets(alter: str) -> list[str | None]:
        return [c.charset for c in table(BASE, "CHARSET gbk", alter).columns]

    assert sets("CHARSET ucs2") == [None, "latin1", "gbk"]
    assert sets("CHARSET ucs2, ADD d TEXT") == [None, "latin1", "gbk", "ucs2"]
    assert sets("MODIFY b TEXT") == [None, "gbk", "gbk"]
    assert sets("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin") == [None, "utf8mb4", "utf8mb4"]
    assert sets("ADD d TEXT CHARSET latin1, CONVERT TO CHARACTER SET utf8mb4") == [None] + ["utf8mb4"] * 3
    assert sets("CONVERT TO CHARACTER SET DEFAULT") == [None, "utf8mb4", "utf8mb4"]


@pytest.mark.parametrize(
    ("before", "to", "after"),
    [
        ("TINYTEXT CHARSET latin1", "utf8mb4", "text"),
        ("TEXT CHARSET latin1", "utf8mb4", "mediumtext"),
        ("LONGTEXT", "utf8mb4", "longtext"),
        ("TEXT CHARSET utf8mb4", "latin1", "text"),
        ("VARCHAR(5) CHARSET latin1", "utf8mb4", "varchar(5)"),
        ("TEXT", "binary", "blob"),
        ("CHAR(5)", "binary", "binary(5)"),
        ("BLOB", "utf8mb4", "blob"),
        ("ENUM('x') CHARSET binary", "ucs2", "enum('x')"),
        ("JSON", "latin1", "longtext"),
    ],
)
def test_text_grows_when_it_is_converted(before: str, to: str, after: str) -> None:
    assert table(f"c {before}", "", f"CONVERT TO CHARACTER SET {to}").columns[0].column_type == after


def test_a_column_that_is_declared_with_the_conversion_has_the_size_it_is_declared_with() -> None:
    found = table(
        "a TEXT CHARSET latin1", "", "MODIFY a TEXT, ADD b TEXT CHARSET gbk, CONVERT TO CHARACTER SET utf8mb4"
    )
    assert [(c.data_type, c.charset) for c in found.columns] == [("text", "utf8mb4")] * 2


def test_labels_that_servers_damage_when_they_convert_them() -> None:
    latin1 = "c ENUM('é') CHARACTER SET latin1"
    assert "labels that servers damage" in refusal(latin1, "", "CONVERT TO CHARACTER SET utf8mb4")
    assert table(latin1, "", "CONVERT TO CHARACTER SET cp1250").columns[0].labels == ("é",)


def test_versioning() -> None:
    assert table("a INT", "", "ADD SYSTEM VERSIONING").versioned
    assert names("ADD SYSTEM VERSIONING", "ADD d INT") == "a b c d row_start row_end"
    assert not table("a INT", "WITH SYSTEM VERSIONING", "DROP SYSTEM VERSIONING").versioned


def test_partitions_become_tables_and_tables_partitions() -> None:
    made = history(
        "CREATE TABLE t (a INT) PARTITION BY HASH(a)", "ALTER TABLE t CONVERT PARTITION p TO TABLE e.u WITH VALIDATION"
    )
    found = made.table("e", "u")
    assert found is not None
    assert [c.name for c in found.columns] == ["a"]
    made.apply("ALTER TABLE t CONVERT TABLE e.u TO PARTITION p VALUES LESS THAN (5)", StatementContext(database="d"))
    assert made.table("e", "u") is None


def test_an_action_that_is_not_known() -> None:
    assert "not known" in refusal(BASE, "", "SELECT everything")
