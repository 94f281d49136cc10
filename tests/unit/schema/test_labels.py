from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.catalog import doubtful_labels
from replica.schema.table import ColumnSchema, TableSchema


def table(*columns: ColumnSchema) -> TableSchema:
    return TableSchema(database="a`b", table="t", columns=columns)


def enum(name: str, *labels: str, data_type: str = "enum", charset: str = "utf8mb4") -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=data_type, charset=charset, labels=labels)


def test_only_labels_that_may_have_lost_a_character_are_asked_for() -> None:
    schema = table(
        ColumnSchema(name="id", data_type="int", column_type="int(11)"),
        enum("fine", "a", "b"),
        enum("narrow", "?", charset="latin1"),
        enum("short", "?", charset="utf8mb3"),
        enum("e", "a", "x?", "b", "?"),
        enum("s", "a", "b", "?", data_type="set", charset="utf32"),
    )
    first, second = doubtful_labels(schema)
    assert (first.column, first.labels) == (4, (1, 3))
    assert first.query() == (
        "BEGIN NOT ATOMIC DECLARE v0 TYPE OF `a``b`.`t`.`e` DEFAULT 2; DECLARE v1 TYPE OF `a``b`.`t`.`e` DEFAULT 4; "
        "SELECT HEX(CONVERT(v0 USING utf8mb4)), HEX(CONVERT(v1 USING utf8mb4)); END"
    )
    assert "DEFAULT 4;" in second.query()
    answer = ["x\N{GRINNING FACE}".encode().hex(), b"?".hex()]
    assert first.answered([answer]).labels == ("a", "x\N{GRINNING FACE}", "b", "?")


def test_binary_labels_are_asked_for_as_bytes() -> None:
    (doubtful,) = doubtful_labels(table(enum("e", "a", "?", "????", charset="binary")))
    assert "SELECT HEX(v0), HEX(v1); END" in doubtful.query()
    answer = ["FF", "\N{GRINNING FACE}".encode().hex()]
    assert doubtful.answered([answer]).labels == ("a", "\N{REPLACEMENT CHARACTER}", "\N{GRINNING FACE}")


def test_no_answer_is_an_error() -> None:
    (doubtful,) = doubtful_labels(table(enum("e", "?")))
    with pytest.raises(SchemaError, match=r"labels of e in `a``b`\.t.*FULL"):
        doubtful.answered([])
