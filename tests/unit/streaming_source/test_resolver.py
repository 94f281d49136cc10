"""Patterns select tables by database and name; a selected table gets the catalog's word on it, if there is one."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from replica.rows.tables import TableTarget
from replica.schema.table import TableSchema
from streaming_source.resolver import SelectedTables

ORDERS = TableSchema(database="shop", table="orders", columns=())
SELECTED = SelectedTables(("shop.*", "crm.cust*", "*.audit", "odd.a+b"), {("shop", "orders"): ORDERS})


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("shop.orders", True),
        ("shop.lines", True),
        ("Shop.orders", False),
        ("shops.orders", False),
        ("crm.customer", True),
        ("crm.accounts", False),
        ("anything.audit", True),
        ("anything.audits", False),
        ("odd.a+b", True),
        ("odd.aab", False),
    ],
)
def test_patterns(name: str, wanted: bool) -> None:  # noqa: FBT001
    database, table = name.split(".")
    selected = pickle.loads(pickle.dumps(SELECTED))  # noqa: S301
    target = selected.resolve(SimpleNamespace(database=database, table=table))
    assert (target is not None) is wanted
    if target is not None:
        assert target == TableTarget(ORDERS if name == "shop.orders" else None)
