"""Values of columns that are added: constants, and no answer where only the server knows."""

from __future__ import annotations

import pytest

from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from replica.schema.effects.history import SchemaHistory
from streaming_source.mirroring.statements.added_values import NULL, KnownValue
from streaming_source.mirroring.statements.alterations import Evolved, NotInRows, target_effect

SESSION = StatementContext(database="shop")
UTF8 = "CHARACTER SET utf8mb4"


def value_of(declared: str, policy: ValuePolicy | None = None) -> KnownValue | None:
    """The value of rows in a column that is declared so; None where the table has to be read again."""
    history = SchemaHistory()
    history.apply("CREATE TABLE t (id INT PRIMARY KEY)", SESSION)
    before = history.table("shop", "t")
    assert before is not None
    added = StatementEffect(f"ALTER TABLE t ADD COLUMN c {declared}", SESSION)
    found = target_effect(added, before, policy or ValuePolicy())
    if isinstance(found, NotInRows):
        assert found.policy == "onAlter"
        return None
    assert isinstance(found, Evolved)
    return dict(found.values).get("c", NULL)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("INT", NULL),
        ("INT DEFAULT NULL", NULL),
        ("TIMESTAMP NULL", NULL),
        ("INT DEFAULT 5 COMMENT 'x' AFTER id", KnownValue("5", ("INT",))),
        ("INT NOT NULL", KnownValue("0", ("INT",))),
        ("INT DEFAULT -007", KnownValue("-7", ("INT",))),
        ("INT DEFAULT '12'", KnownValue("12", ("INT",))),
        ("TINYINT(1) NOT NULL DEFAULT TRUE", KnownValue("1", ("TINYINT",))),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", KnownValue("18446744073709551615", ("DECIMAL(20,0)",))),
        ("DECIMAL(10,2) DEFAULT 1.5", KnownValue("1.5", ("DECIMAL(10,2)",))),
        ("DECIMAL(10,2) NOT NULL", KnownValue("0", ("DECIMAL(10,2)",))),
        ("DOUBLE DEFAULT 1.5e-3", KnownValue("1.5e-3", ("DOUBLE", "DOUBLE"))),
        ("FLOAT DEFAULT -0.1", KnownValue("-0.1", ("DOUBLE", "FLOAT"))),
        (f"VARCHAR(9) {UTF8} DEFAULT 'it''s \\\\'", KnownValue("it's \\")),
        (f'VARCHAR(9) {UTF8} DEFAULT "é"', KnownValue("é")),
        (f"VARCHAR(9) {UTF8} DEFAULT 12", KnownValue("12")),
        (f"VARCHAR(9) {UTF8} NOT NULL", KnownValue("")),
        (f"CHAR(9) {UTF8} DEFAULT 'a  '", KnownValue("a")),
        (f"TEXT {UTF8} DEFAULT 'long'", KnownValue("long")),
        (f"ENUM('a','b') {UTF8} NOT NULL", KnownValue("a")),
        (f"ENUM('a','b') {UTF8} DEFAULT 'b'", KnownValue("b")),
        (f"SET('a','b') {UTF8} NOT NULL", KnownValue("")),
        ("BIT(4) DEFAULT b'101'", KnownValue("5", ("BIGINT",))),
        ("BINARY(4) DEFAULT 'a'", KnownValue(bytes.fromhex("61000000"))),
        ("VARBINARY(4) NOT NULL", KnownValue(bytes.fromhex(""))),
        ("BINARY(3) DEFAULT x'00fF'", KnownValue(bytes.fromhex("00ff00"))),
        ("VARBINARY(12) DEFAULT 0x00112233445566778899aabb", KnownValue(bytes.fromhex("00112233445566778899aabb"))),
        ("VARBINARY(4) DEFAULT x'abc'", None),
        ("VARBINARY(1) DEFAULT x'abcd'", None),
        ("DATE DEFAULT '2020-02-29'", KnownValue("2020-02-29", ("DATE",))),
        ("DATE NOT NULL", NULL),
        ("DATETIME(3) DEFAULT '2020-02-29 01:02:03.5'", KnownValue("2020-02-29 01:02:03.5", ("TIMESTAMP_NTZ",))),
        ("DATETIME DEFAULT '0000-00-00 00:00:00'", NULL),
        ("TIME(2) DEFAULT '01:02:03.5'", KnownValue("01:02:03.50")),
        ("TIME NOT NULL", KnownValue("00:00:00")),
        ("YEAR DEFAULT 2026", KnownValue("2026", ("INT",))),
        ("YEAR NOT NULL", KnownValue("0", ("INT",))),
    ],
)
def test_a_constant_is_a_value_of_the_target(declared: str, value: KnownValue | None) -> None:
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
