"""The reason of a suspended table is its first error, also if its target cannot be looked at any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from replica.errors import ConfigError
from streaming_source.mirroring.apply.suspension import suspended_by_work
from streaming_source.mirroring.control.states import State, state_of
from streaming_source.mirroring.writers.versions import Commit
from tests.unit.streaming_source.mirroring.control.test_control_row import row

ERROR = PySparkException("the job was broken")


def suspended(looks: Any) -> Any:
    rule = SimpleNamespace(hides=False)
    settings: Any = SimpleNamespace(rule_of=lambda _: rule, format=SimpleNamespace(name="delta"))
    part = SimpleNamespace(spark=None, commit=Commit("m", 4, ""), lacking_columns=looks)
    work: Any = SimpleNamespace(row=row(), part=part)
    return suspended_by_work(settings, work, ERROR)


@pytest.mark.parametrize("error", [PySparkException("no such table"), ConfigError("a rule does not fit", hint="")])
def test_a_look_that_fails_ends_nothing(error: Exception) -> None:
    def looks() -> list[str]:
        raise error

    found = suspended(looks)
    assert state_of(found) is State.RETRIED
    assert "the job was broken" in str(found.error)


def test_a_lost_column_is_the_reason() -> None:
    found = suspended(lambda: ["v"])
    assert state_of(found) is State.SUSPENDED
    assert "has no column v any more" in str(found.error)
    assert "mirror_resync" in str(found.error)
