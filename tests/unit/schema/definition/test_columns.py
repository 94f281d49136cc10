"""Attributes, keys and constraints of CREATE TABLE: what is read, and what is stepped over."""

from __future__ import annotations

import pytest

from tests.unit.schema.ddl import column, refusal, table


@pytest.mark.parametrize(
    "default",
    [
        "5", "-5.5", "+.5", "1.", "1e5", "1.5e-3", "1.E+3", "NULL", "TRUE", "'a,b)'", '"x"', "N'x'", "_latin1'x'",
        "x'41'",
        "b'1'",
        "0x41", "DATE '2020-01-01'", "'a' 'b'", "(1 + (2))", "now()", "CURRENT_TIMESTAMP",
        "uuid()", "concat('(', a)",
        "NEXT VALUE FOR s", "CASE WHEN 1 THEN CASE 2 WHEN 3 THEN 4 END ELSE 5 END", "d.f(1)", "~1", "- 1",
    ],
)  # fmt: skip
def test_any_default_is_stepped_over(default: str) -> None:
    found = table(f"a INT, c VARCHAR(9) DEFAULT {default} NOT NULL COMMENT 'x', z INT UNSIGNED")
    assert [(c.name, c.nullable, c.unsigned) for c in found.columns] == [
        ("a", True, False),
        ("c", False, False),
        ("z", True, True),
    ]
    assert found.columns[1].comment == "x"


@pytest.mark.parametrize(
    "attribute",
    [
        "AUTO_INCREMENT", "INVISIBLE", "AS (1 + 2) VIRTUAL", "GENERATED ALWAYS AS (f(')')) STORED", "AS (1) PERSISTENT",
        "CHECK (1 > 0)", "CHECK (1 > 0) NOT ENFORCED",
        "REFERENCES o (id) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION",
        "WITHOUT SYSTEM VERSIONING", "STORAGE DISK", "COLUMN_FORMAT FIXED", "ON UPDATE now()", "engine_thing='x'",
        "`Engine Thing`=5", "/*!80023 INVISIBLE */", "CONSTRAINT k CHECK (1)",
    ],
)  # fmt: skip
def test_attributes_that_change_no_bytes(attribute: str) -> None:
    assert column(f"INT UNSIGNED {attribute} NOT NULL COMMENT 'x'") == column("INT UNSIGNED COMMENT 'x' NOT NULL")


def test_an_attribute_that_is_not_known_may_change_everything() -> None:
    assert "attribute SHUFFLED, which is not known" in refusal("a INT SHUFFLED")


def test_keys_name_their_columns_in_key_order() -> None:
    found = table(
        "a INT, b VARCHAR(5), c INT, CONSTRAINT pk PRIMARY KEY USING BTREE (c DESC, b(2)) COMMENT 'x', INDEX i (a), "
        "FULLTEXT KEY f (b), FOREIGN KEY fk (a) REFERENCES o (id) ON DELETE CASCADE, CHECK (a > 0), KEY (a, c)"
    )
    assert [c.name for c in found.columns] == ["a", "b", "c"]
    assert found.primary_key == (2, 1)
    assert [(c.key, c.nullable) for c in found.columns] == [(False, True), (True, False), (True, False)]


def test_columns_may_be_called_like_keywords() -> None:
    found = table(
        "period INT, vector INT, `key` INT, `primary` INT, comment INT, first INT, `check` INT, PRIMARY KEY (`key`)"
    )
    assert [c.name for c in found.columns] == ["period", "vector", "key", "primary", "comment", "first", "check"]
    assert found.primary_key == (2,)


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ("UNIQUE (a)", 0),
        ("UNIQUE (b)", 1),
        ("UNIQUE (b(10))", 0),
        ("UNIQUE u (c)", 1),
        ("UNIQUE (a) USING HASH, UNIQUE (b)", 2),
        ("UNIQUE INDEX USING HASH (a)", 1),
        ("PRIMARY KEY (a)", 0),
    ],
)
def test_unique_keys_that_may_be_kept_as_hashes(keys: str, count: int) -> None:
    assert table(f"a INT, b TEXT, c VARCHAR(900), {keys}").hash_keys == count


def test_periods() -> None:
    found = table(
        "a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
        "PERIOD FOR SYSTEM_TIME (s, e)",
        "WITH SYSTEM VERSIONING",
    )
    assert found.versioned
    assert [c.period for c in found.columns] == [None, "start", "end"]
    hidden = table("a INT WITH SYSTEM VERSIONING, b INT")
    assert [(c.name, c.hidden) for c in hidden.columns][2:] == [("row_start", True), ("row_end", True)]
    overlapping = table("id INT, a DATE, b DATE, PERIOD FOR p (a, b), PRIMARY KEY (id, p WITHOUT OVERLAPS)")
    assert overlapping.primary_key == (0, 2, 1)


def test_timestamps_are_not_null_unless_the_session_says_so() -> None:
    assert column("TIMESTAMP").nullable
    assert not column("TIMESTAMP", explicit_timestamps=False).nullable
    assert column("TIMESTAMP NULL", explicit_timestamps=False).nullable


@pytest.mark.parametrize("items", ["a INT, A INT", "a INT, PRIMARY KEY (b)", "a INT,", "", "a"])
def test_damaged_definitions_are_not_understood(items: str) -> None:
    assert "not understood" in refusal(items)
