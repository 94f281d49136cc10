"""A column with its character set settled: lengths in bytes, types that a set changes, labels it cannot hold."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.definition.column import Column, converted, width_of, with_charset, with_default_width


@pytest.mark.parametrize(
    ("column", "octets"),
    [
        (Column(name="c", data_type="varchar", length=5, charset="utf8mb4"), 20),
        (Column(name="c", data_type="char", length=5, charset="utf8mb3", guessed_width=True), None),
        (Column(name="c", data_type="char", length=5), None),
        (Column(name="c", data_type="varbinary", length=5), 5),
        (Column(name="c", data_type="mediumtext", charset="latin1"), 16_777_215),
        (Column(name="c", data_type="vector", length=5), 20),
        (Column(name="c", data_type="enum", labels=("a",), charset="latin1"), None),
        (Column(name="c", data_type="int"), None),
    ],
)
def test_the_longest_value(column: Column, octets: int | None) -> None:
    assert column.octets == octets


def test_a_set_settles_the_size_and_the_type() -> None:
    asked = Column(name="c", data_type="text", wanted=100)
    assert with_charset(asked, "latin1", None).data_type == "tinytext"
    assert with_charset(asked, "utf8mb4", None).data_type == "text"
    assert with_charset(asked, "binary", None).data_type == "tinyblob"
    long = Column(name="c", data_type="varchar", length=70_000)
    assert with_charset(long, "latin1", None).data_type == "mediumtext"
    assert with_charset(Column(name="c", data_type="int"), "latin1", None).charset is None


def test_labels_lose_their_trailing_spaces_but_not_as_bytes() -> None:
    labelled = Column(name="c", data_type="set", labels=("a ", " b"))
    assert with_charset(labelled, "latin1", None).labels == ("a", " b")
    assert with_charset(labelled, "binary", None).labels == ("a ", " b")


def test_labels_have_to_fit_their_set() -> None:
    with pytest.raises(SchemaError, match="may not have"):
        with_charset(Column(name="c", data_type="enum", labels=("ж",)), "latin1", None)
    with pytest.raises(SchemaError, match="servers damage"):
        converted(Column(name="c", data_type="enum", labels=("a",), charset="latin1"), "ucs2", None)


def test_declarations_are_quoted_as_the_server_quotes() -> None:
    column = Column(name="c", data_type="enum", labels=("it's", "back\\slash", "line\nend"), charset="latin1")
    assert column.schema(key=False).column_type == r"enum('it''s','back\\slash','line\nend')"


def test_widths() -> None:
    assert with_default_width(Column(name="c", data_type="int", unsigned=True)).digits == (10,)
    assert with_default_width(Column(name="c", data_type="int", digits=(3,))).digits == (3,)
    assert [width_of(charset) for charset in (None, "binary", "latin1", "utf8", "utf8mb4")] == [1, 1, 1, 3, 4]
