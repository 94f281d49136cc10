"""Names as Spark compares them. tests/mirroring/sessions/test_names.py asks the JVM the same."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from streaming_source.schema.spark_names import catalog_key, refuse_clash, spark_column_key


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Id", "ID", True),
        ("maße", "masse", False),
        ("maße", "MAßE", True),
        ("maẞe", "maße", True),
        ("\u017f", "s", True),
        ("\u212a", "k", True),
        ("İ", "i", True),
        ("İ", "i\u0307", True),
        ("\u0131", "I", True),
        ("ς", "\u03c3", True),
        ("µ", "μ", True),
        ("ᾈ", "ᾀ", True),
        ("é", "e", False),
        ("a", "a ", False),
    ],
)
def test_columns(one: str, other: str, *, same: bool) -> None:
    assert (spark_column_key(one) == spark_column_key(other)) is same


def test_tables_of_a_catalog() -> None:
    assert catalog_key("Straße") == catalog_key("STRAßE") != catalog_key("strasse")


def test_two_columns_that_spark_takes_for_one_are_refused_by_both_names() -> None:
    refuse_clash("shop.t", ["maße", "masse", "id"])
    with pytest.raises(SchemaError, match=r"shop\.t has the columns s and \u017f, which the server distinguishes"):
        refuse_clash("shop.t", ["id", "s", "\u017f"])
