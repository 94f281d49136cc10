"""A rule as the control table keeps it: the same text for the same rule and key, and back."""

from __future__ import annotations

from streaming_source.transforms.hashes import HashKey
from streaming_source.transforms.table_rules import TableRule, fingerprint_of_text, kept_rule, rule_of_text

KEY = HashKey(b"k" * 32)
RULE = TableRule(
    leave_out=("secret",),
    mask={"card": "xxxx", "pin": None},
    hash=("email", "born"),
    where="country = 'DE'",
    rename={"cust_nm": "customer_name"},
)


def test_a_rule_comes_back_from_its_text() -> None:
    text = kept_rule(RULE, KEY)
    assert text is not None
    assert kept_rule(rule_of_text(text), KEY) == text
    assert rule_of_text(text).mask == RULE.mask
    assert rule_of_text(text).where == RULE.where
    assert fingerprint_of_text(text) == KEY.fingerprint
    assert "kkk" not in text


def test_a_table_that_is_copied_as_it_is_has_no_text() -> None:
    assert kept_rule(TableRule(), KEY) is None
    assert rule_of_text(None) == TableRule()
    assert fingerprint_of_text(None) is None


def test_the_order_of_columns_is_no_change_and_another_key_is() -> None:
    one, other = TableRule(hash=("a", "b")), TableRule(hash=("b", "a"))
    assert kept_rule(one, KEY) == kept_rule(other, KEY) != kept_rule(one, HashKey(b"l" * 32))
    assert kept_rule(TableRule(leave_out=("a",)), KEY) == kept_rule(TableRule(leave_out=("a",)), None)
