"""Patterns for tables: `*` is any text, all else is itself."""

from __future__ import annotations

import pytest

from replica.schema.patterns import matcher


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("shop.orders", True),
        ("shop.line\nend", True),
        ("shops.orders", False),
        ("Shop.orders", False),
        ("crm.customer", True),
        ("crm.accounts", False),
        ("any.thing.audit", True),
        ("odd.a+b", True),
        ("odd.aab", False),
    ],
)
def test_names(name: str, *, wanted: bool) -> None:
    patterns = matcher(["shop.*", "crm.cust*", "*.audit", "odd.a+b"])
    assert (patterns.fullmatch(name) is not None) is wanted
