"""Which names are those of copies, and of which selections they are left out."""

from __future__ import annotations

import pytest

from replica.schema.patterns import is_shadow, shadowed


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("_orders_gho", "orders"),
        ("_orders_ghc", "orders"),
        ("_orders_ghk", "orders"),
        ("_orders_del", "orders"),
        ("_orders_20261121200000_del", "orders"),
        ("_orders_new", "orders"),
        ("_orders_old", "orders"),
        ("____orders_new", "orders"),
        ("_Orders_GHO", "Orders"),
        ("_a_b_new", "a_b"),
        ("orders_new", None),
        ("_orders", None),
        ("_orders_newer", None),
        ("_gho", None),
        ("__new", None),
        ("", None),
    ],
)
def test_names(name: str, original: str | None) -> None:
    assert shadowed(name) == original


def test_a_copy_is_left_out_only_beside_its_table_and_where_it_is_not_named() -> None:
    assert is_shadow("shop", "_orders_gho", ["shop.*"])
    assert is_shadow("shop", "_orders_gho", ["crm.x", "shop.*"])
    assert not is_shadow("shop", "_orders_gho", ["shop.*", "shop._orders_gho"])
    assert not is_shadow("shop", "_orders_gho", ["shop._*"])  # orders itself is not asked for
    assert not is_shadow("shop", "orders_gho", ["shop.*"])
    assert not is_shadow("shop", "_orders_gho", [])
