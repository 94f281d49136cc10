"""Which targets are looked at, and what it means that none is there."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from replica.errors import ConfigError
from streaming_source.mirroring.apply import missing_targets as gone_targets
from streaming_source.mirroring.apply.missing_targets import (
    AT_ONCE,
    AT_START,
    CHECK_EVERY_S,
    MissingTargetCheck,
    target_exists,
)


class Row:
    def __init__(self, number: int) -> None:
        self.target = f"t{number}"


class Looks:
    """A clock, the looks that were made, and the targets that are gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.seen: list[str] = []
        self.removed: set[str] = set()
        self.presence = MissingTargetCheck(2)
        self.rows: Any = [Row(number) for number in range(150)]
        monkeypatch.setattr(gone_targets.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(gone_targets, "target_exists", self._there)
        monkeypatch.setattr("pyspark.inheritable_thread_target", lambda _: lambda call: call)

    def _there(self, _: object, row: Row) -> bool:
        self.seen.append(row.target)
        return row.target not in self.removed

    def look(self) -> list[str]:
        self.seen.clear()
        return [row.target for row in self.presence.missing(None, self.rows)]  # type: ignore[arg-type]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_all_are_looked_at_in_turn_and_few_at_once(looks: Looks) -> None:
    looks.removed = {"t3", "t149"}
    assert looks.look() == ["t3"]
    assert len(looks.seen) == AT_START
    assert not looks.presence.due()
    assert looks.look() == []
    assert looks.seen == [], "one batch after the other costs nothing"
    found = []
    for _ in range(3):
        looks.now += CHECK_EVERY_S
        found += looks.look()
        assert len(looks.seen) == AT_ONCE
    assert found == ["t149", "t3"]
    assert "t0" in looks.seen, "then it begins again"


@pytest.mark.parametrize("rows", [0, 1])
def test_a_mirror_of_few_tables(looks: Looks, rows: int) -> None:
    del looks.rows[rows:]
    looks.removed = {"t0"}
    assert looks.look() == ["t0"][:rows]


def test_none_that_is_there_is_no_fault_of_a_table(looks: Looks) -> None:
    looks.removed = {f"t{number}" for number in range(150)}
    with pytest.raises(ConfigError, match=r"none of 100 targets exists, for example t0"):
        looks.look()


def test_a_target_that_cannot_be_read_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise PySparkException("a commit of its log is no JSON\nand so on")

    row: Any = SimpleNamespace(target="lake.t", writer="spark")
    monkeypatch.setattr(gone_targets, "open_target", lambda *_: SimpleNamespace(exists=broken))
    assert target_exists(None, row)  # type: ignore[arg-type]
    assert caplog.messages == ["lake.t cannot be read: a commit of its log is no JSON"]


@pytest.mark.parametrize("exists", [True, False])
def test_spark_looks_where_deltalake_is_not_installed(monkeypatch: pytest.MonkeyPatch, *, exists: bool) -> None:
    row: Any = SimpleNamespace(target="lake.t", writer="native")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setattr(gone_targets, "known_folder", lambda *_: "/lake/t")
    monkeypatch.setattr(gone_targets, "open_target", lambda *_: SimpleNamespace(exists=lambda: exists))
    assert target_exists(None, row) is exists  # type: ignore[arg-type]
