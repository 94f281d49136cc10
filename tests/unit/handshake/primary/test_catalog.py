from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.handshake.primary.catalog import read_tables
from replica.handshake.registration import Query
from tests.unit.handshake.steps import converse


def test_names_are_arguments_never_text() -> None:
    step = next(read_tables([("a'b", "c")]))
    assert isinstance(step, Query)
    assert "a'b" not in step.sql
    assert set(step.arguments) == {"a'b", "c"}


def test_a_missing_table_is_named_with_the_grant() -> None:
    with pytest.raises(SchemaError, match=r"shop\.order does not exist") as caught:
        converse(read_tables([("shop", "order"), ("shop", None)]), {})
    assert "GRANT SELECT" in caught.value.hint
    with pytest.raises(SchemaError, match=r"a\.b, c\.d do not"):
        converse(read_tables([("a", "b"), ("c", "d")]), {})


def test_a_whole_database_may_be_empty() -> None:
    said, tables = converse(read_tables([("crm", None)]), {})
    assert tables == {}
    assert len(said) == 2
