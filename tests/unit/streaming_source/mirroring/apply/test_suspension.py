"""The reason of a suspended table is its first error, also if its target cannot be looked at any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from replica.errors import ConfigError
from streaming_source.mirroring.apply import suspension
from streaming_source.mirroring.apply.suspension import suspended_by_work
from streaming_source.mirroring.control.states import State, refused, state_of
from streaming_source.mirroring.writers.target_format import Commit
from tests.unit.streaming_source.mirroring.control.test_control_table import row

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
    assert str(found.error).startswith("the job was broken. Re-snapshot the table: mirror_resnapshot(")


@pytest.mark.parametrize("error", [None, ConfigError("the version is not kept any more", hint="")])
def test_a_target_gets_the_rows_of_before_its_reading_where_they_are_kept(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    asked: list[Any] = []

    def put(old: Any) -> None:
        asked.append(old)
        if error is not None:
            raise error

    monkeypatch.setattr(suspension, "open_target", lambda *_: SimpleNamespace(restore=put))
    before, spark = row()._replace(batch=5, position="0-1-50"), cast("Any", None)
    broken = refused(row()._replace(batch=9, position="0-1-90").with_before(8, before), "its rows do not fit")
    found = suspension.restore(spark, broken)
    assert [(old.batch, old.position) for old in asked] == [(5, "0-1-50")]
    assert (found.batch, found.position) == ((5, "0-1-50") if error is None else (9, "0-1-90"))
    assert (state_of(found), found.error, found.before) == (State.SUSPENDED, "its rows do not fit", None)
    assert suspension.restore(spark, found) == found
    assert len(asked) == 1, "a target that was put back, or cannot be, is left alone"


def test_a_lost_column_is_the_reason() -> None:
    found = suspended(lambda: ["v"])
    assert state_of(found) is State.SUSPENDED
    assert "has no column v any more" in str(found.error)
    assert "mirror_resnapshot" in str(found.error)
