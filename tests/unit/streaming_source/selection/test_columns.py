"""Columns by name and pattern: found without regard to case, refused with the nearest name where there are none."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from streaming_source.selection.resolver import check_columns, column_matcher

NAMES = ["id", "Name", "price_net", "price_gross", "a.b"]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("ID", "name"), ["id", "Name"]),
        (("price_*",), ["price_net", "price_gross"]),
        (("*",), NAMES),
        (("a.b",), ["a.b"]),
        (("*e*", "id"), ["id", "Name", "price_net", "price_gross"]),
    ],
)
def test_patterns_choose_names(patterns: tuple[str, ...], found: list[str]) -> None:
    matcher = column_matcher(patterns)
    assert matcher is not None
    assert [name for name in NAMES if matcher.fits(name)] == found
    check_columns(patterns, NAMES, "d.t does not have")


def test_no_patterns_choose_all() -> None:
    assert column_matcher(()) is None


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nmae", r"names nmae, a column that d\.t does not have\..*Did you mean Name\?"),
        ("price_net*x", "Did you mean price_net"),
        ("zzz", "There are id, Name, price_net, price_gross, a.b"),
    ],
)
def test_a_name_that_no_column_has_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_columns(("id", pattern), NAMES, "d.t does not have")
