"""Values of columns that are added: constants as SQL of the target, and no answer where only the server knows."""

from __future__ import annotations

import pytest

from replica.rows.types.types import ValuePolicy
from replica.schema.effect import StatementEffect
from replica.schema.history import SchemaHistory
from replica.schema.session import StatementContext
from streaming_source.mirroring.alterations import Evolved, NotInRows, asked_of

SESSION = StatementContext(database="shop")
UTF8 = "CHARACTER SET utf8mb4"


def value_of(declared: str, policy: ValuePolicy | None = None) -> str | None:
    """The value of rows in a column that is declared so; None where the table has to be read again."""
    history = SchemaHistory()
    history.apply("CREATE TABLE t (id INT PRIMARY KEY)", SESSION)
    before = history.table("shop", "t")
    assert before is not None
    added = StatementEffect(f"ALTER TABLE t ADD COLUMN c {declared}", SESSION)
    found = asked_of(added, before, policy or ValuePolicy())
    if isinstance(found, NotInRows):
        assert found.policy == "onAlter"
        return None
    assert isinstance(found, Evolved)
    return dict(found.values).get("c", "NULL")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("INT", "NULL"),
        ("INT DEFAULT NULL", "NULL"),
        ("TIMESTAMP NULL", "NULL"),
        ("INT DEFAULT 5 COMMENT 'x' AFTER id", "CAST('5' AS INT)"),
        ("INT NOT NULL", "CAST('0' AS INT)"),
        ("INT DEFAULT -007", "CAST('-7' AS INT)"),
        ("INT DEFAULT '12'", "CAST('12' AS INT)"),
        ("TINYINT(1) NOT NULL DEFAULT TRUE", "CAST('1' AS TINYINT)"),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", "CAST('18446744073709551615' AS DECIMAL(20,0))"),
        ("DECIMAL(10,2) DEFAULT 1.5", "CAST('1.5' AS DECIMAL(10,2))"),
        ("DECIMAL(10,2) NOT NULL", "CAST('0' AS DECIMAL(10,2))"),
        ("DOUBLE DEFAULT 1.5e-3", "CAST(CAST('1.5e-3' AS DOUBLE) AS DOUBLE)"),
        ("FLOAT DEFAULT -0.1", "CAST(CAST('-0.1' AS DOUBLE) AS FLOAT)"),
        (f"VARCHAR(9) {UTF8} DEFAULT 'it''s \\\\'", "'it\\'s \\\\'"),
        (f'VARCHAR(9) {UTF8} DEFAULT "é"', "'é'"),
        (f"VARCHAR(9) {UTF8} DEFAULT 12", "'12'"),
        (f"VARCHAR(9) {UTF8} NOT NULL", "''"),
        (f"CHAR(9) {UTF8} DEFAULT 'a  '", "'a'"),
        (f"TEXT {UTF8} DEFAULT 'long'", "'long'"),
        (f"ENUM('a','b') {UTF8} NOT NULL", "'a'"),
        (f"ENUM('a','b') {UTF8} DEFAULT 'b'", "'b'"),
        (f"SET('a','b') {UTF8} NOT NULL", "''"),
        ("BIT(4) DEFAULT b'101'", "CAST('5' AS BIGINT)"),
        ("BINARY(4) DEFAULT 'a'", "X'61000000'"),
        ("VARBINARY(4) NOT NULL", "X''"),
        ("BINARY(3) DEFAULT x'00fF'", "X'00ff00'"),
        ("VARBINARY(12) DEFAULT 0x00112233445566778899aabb", "X'00112233445566778899aabb'"),
        ("VARBINARY(4) DEFAULT x'abc'", None),
        ("VARBINARY(1) DEFAULT x'abcd'", None),
        ("DATE DEFAULT '2020-02-29'", "CAST('2020-02-29' AS DATE)"),
        ("DATE NOT NULL", "NULL"),
        ("DATETIME(3) DEFAULT '2020-02-29 01:02:03.5'", "CAST('2020-02-29 01:02:03.5' AS TIMESTAMP_NTZ)"),
        ("DATETIME DEFAULT '0000-00-00 00:00:00'", "NULL"),
        ("TIME(2) DEFAULT '01:02:03.5'", "'01:02:03.50'"),
        ("TIME NOT NULL", "'00:00:00'"),
        ("YEAR DEFAULT 2026", "CAST('2026' AS INT)"),
        ("YEAR NOT NULL", "CAST('0' AS INT)"),
    ],
)
def test_a_constant_is_sql_of_the_target(declared: str, value: str) -> None:
    assert value_of(declared) == value


@pytest.mark.parametrize(
    "declared",
    [
        "INT DEFAULT 300.5",
        "TINYINT DEFAULT 300",
        "INT UNSIGNED DEFAULT '-1'",
        "INT DEFAULT (1 + 1)",
        "INT DEFAULT NEXT VALUE FOR s",
        "INT GENERATED ALWAYS AS (id + 1) STORED",
        "INT AUTO_INCREMENT UNIQUE",
        "DECIMAL(10,2) DEFAULT 1.555",
        "DECIMAL(3,1) DEFAULT 100",
        "FLOAT(7,3) DEFAULT 0.1",
        "DOUBLE DEFAULT -0.0",
        f"VARCHAR(2) {UTF8} DEFAULT 'abc'",
        "VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'",
        f"VARCHAR(9) {UTF8} DEFAULT _latin1'a'",
        f"VARCHAR(9) {UTF8} DEFAULT 1.50",
        f"VARCHAR(9) {UTF8} DEFAULT x'41'",
        f"VARCHAR(36) {UTF8} DEFAULT UUID()",
        f"ENUM('a','b') {UTF8} DEFAULT 'B'",
        f"SET('a','b') {UTF8} DEFAULT 'b,a'",
        "BIT(2) DEFAULT b'101'",
        "DATE DEFAULT '2020-2-9'",
        "DATE DEFAULT '20200229'",
        "DATE DEFAULT DATE '2020-02-29'",
        "DATETIME DEFAULT '2020-02-29 01:02:03.5'",
        "DATETIME DEFAULT CURRENT_TIMESTAMP",
        "TIMESTAMP",
        "TIMESTAMP DEFAULT '2020-02-29 01:02:03'",
        "TIME DEFAULT '1:2'",
        "TIME DEFAULT 100",
        "YEAR DEFAULT 70",
        "JSON NOT NULL",
        "UUID NOT NULL",
        "POINT NOT NULL",
        "INET6 DEFAULT '::1'",
    ],
)
def test_what_only_the_server_knows_is_read_again(declared: str) -> None:
    assert value_of(declared) is None


def test_impossible_dates_are_null_under_that_policy_alone() -> None:
    for policy in (ValuePolicy(invalid_dates="error"), ValuePolicy(invalid_dates="text")):
        assert value_of("DATE NOT NULL", policy) is None
