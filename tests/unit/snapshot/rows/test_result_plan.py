"""A result is of the definition, or it is refused with what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType as T
from replica.snapshot.rows.result_plan import plan_result
from tests.kit.snapshot.result_rows import CASES, LATIN1, UNSIGNED, UTF8, ResultCase, table

BY_NAME = {case.column.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.column.name)
def test_a_result_of_the_definition_is_taken(case: ResultCase) -> None:
    (plan,) = plan_result(table([case.column]), [case.answered])
    assert plan.name == case.column.name


@pytest.mark.parametrize(
    ("name", "changed", "what"),
    [
        ("int", {"type": T.LONGLONG}, "type"),
        ("int", {"flags": UNSIGNED}, "sign"),
        ("bigint_unsigned", {"flags": 0}, "sign"),
        ("decimal_10_4", {"length": 13}, "precision"),
        ("decimal_10_4", {"decimals": 5}, "precision"),
        ("datetime_3", {"decimals": 4}, "number of digits"),
        ("bit_9", {"length": 8}, "length"),
        ("year", {"length": 2}, "length"),
        ("char_5", {"length": 6}, "length"),
        ("char_5", {"charset": UTF8}, "character set"),
        ("char_5", {"charset": 63}, "character set"),
        ("char_5", {"charset": 60_000}, "character set"),
        ("varbinary_300", {"charset": LATIN1}, "character set"),
        ("varchar_64", {"length": 257}, "length"),
        ("tinytext", {"length": 65_535}, "length"),
        ("uuid", {"length": 4}, "length"),
        ("enum_'a'_'b'", {"type": T.STRING}, "type"),
        ("set_'64'", {"type": T.LONG}, "type"),
    ],
)
def test_a_result_of_another_definition_is_refused(name: str, changed: dict[str, int], what: str) -> None:
    case = BY_NAME[name]
    with pytest.raises(SchemaError, match=f"but its {what} in the result differs"):
        plan_result(table([case.column]), [case.answered._replace(**changed)])


def test_a_result_of_more_columns_is_refused() -> None:
    case = CASES[0]
    with pytest.raises(SchemaError, match=r"has 2 columns, and its definition 1\. The table was changed"):
        plan_result(table([replace(case.column)]), [case.answered] * 2)
