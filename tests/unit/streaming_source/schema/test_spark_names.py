"""Names as Spark compares them. tests/spark/test_names.py asks the JVM the same."""

from __future__ import annotations

import pytest

from streaming_source.schema.spark_names import catalog_key, spark_column_key


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
