"""Rules of a mirror's tables: the first pattern that fits holds, and what cannot be is refused by its name."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from streaming_source.transforms.table_rules import TableRule, table_rules

WHOLE = {
    "mode": "current",
    "leaveOut": ["secret"],
    "mask": {"card": "xxxx", "pin": None},
    "hash": ["email"],
    "where": "country = 'DE'",
    "rename": {"cust_nm": "customer_name", "email": "email_hash"},
}


def test_the_first_pattern_that_fits_is_the_rule() -> None:
    rules = table_rules({"shop.orders": WHOLE, "shop.*": {"leaveOut": ["note"]}, "shop.last": {}}, has_key=True)
    assert rules.of(("shop", "orders")) == TableRule(
        leave_out=("secret",),
        mask={"card": "xxxx", "pin": None},
        hash=("email",),
        where="country = 'DE'",
        rename={"cust_nm": "customer_name", "email": "email_hash"},
    )
    assert rules.of(("shop", "orders")).named == ("secret", "card", "pin", "email", "cust_nm")
    assert rules.of(("shop", "last")).leave_out == ("note",)
    assert rules.of(("crm", "orders")) == TableRule()
    assert not TableRule().hides
    assert table_rules(None, has_key=False).of(("shop", "orders")) == TableRule()


def test_a_list_of_masked_columns_makes_them_null() -> None:
    assert table_rules({"a.b": {"mask": ["x", "y"]}}, has_key=False).of(("a", "b")).mask == {"x": None, "y": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["shop.orders"], "rules is not a table of rules but a list"),
        ({"orders": {}}, "the rule 'orders' is not of the form database.table"),
        ({"shop.a": ["secret"]}, "the rule shop.a has no fields"),
        ({"shop.a": {"leave_out": ["x"]}}, "the unknown field 'leave_out'. Did you mean leaveOut?"),
        ({"shop.a": {"mode": "past"}}, "mode is not one of current, soft_delete, history, append_log"),
        ({"shop.a": {"leaveOut": "secret"}}, "leaveOut is not a list of columns"),
        ({"shop.a": {"hash": [1]}}, "hash is not a list of columns"),
        ({"shop.a": {"mask": {"x": ["y"]}}}, "mask is not a constant for each column"),
        ({"shop.a": {"mask": "x"}}, "mask is not a constant for each column"),
        ({"shop.a": {"where": " "}}, "where is not a condition"),
        ({"shop.a": {"where": True}}, "where is not a condition"),
        ({"shop.a": {"rename": {"a": ""}}}, "rename is not a new name for each column"),
        ({"shop.a": {"rename": {"a": "n", "b": "N"}}}, "rename is not a different name for each column"),
        ({"shop.a": {"leaveOut": ["x", "X"]}}, "names a column twice in leaveOut"),
        ({"shop.a": {"leaveOut": ["x"], "mask": ["X"]}}, "names x in leaveOut and in mask"),
        ({"shop.a": {"mask": ["x"], "hash": ["x"]}}, "names x in mask and in hash"),
        ({"shop.a": {"leaveOut": ["x"], "rename": {"x": "y"}}}, "names x in leaveOut and in rename"),
        ({"shop.a": {"hash": ["x"]}}, "the rule shop.a hashes columns, but there is no key. Name a file"),
    ],
)
def test_what_cannot_be_is_refused(given: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        table_rules(given, has_key=False)
    assert message in str(refused.value)
