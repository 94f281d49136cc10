"""The guard of recorded speed: what is too low once is measured again, what is too low each time ends it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tools.bench.guard import guard_ratios
from tools.bench.guard.bench_guard import AGAIN, lines_of, looked_at_again, too_low
from tools.bench.guard.guard_ratios import JDBC, PLAN, RECIPE, RELAY, TABLES, TOOL, measured_again

if TYPE_CHECKING:
    from collections.abc import Collection

pytestmark = pytest.mark.spark
RECORDED = {"tiny": {TOOL: 18.0, RELAY: 10.0}, "tables": {TABLES: 0.6}}


def test_half_of_a_peer_and_three_quarters_of_our_own_hold() -> None:
    assert too_low({"tiny": {TOOL: 9.0, RELAY: 5.0}, "tables": {TABLES: 0.45}}, RECORDED) == {}
    low = too_low({"tiny": {TOOL: 8.9, RELAY: 5.0}, "tables": {TABLES: 0.44}}, RECORDED)
    assert low == {"tiny": {TOOL}, "tables": {TABLES}}


def test_the_line_of_a_ratio_that_fell_says_so_and_no_other_does() -> None:
    found = {"tiny": {TOOL: 8.9, RELAY: 5.1}, "tables": {TABLES: 0.6}}
    fallen = [line for line in lines_of(found, RECORDED, too_low(found, RECORDED)) if "TOO LOW" in line]
    assert [line.split()[:3] for line in fallen] == [["tiny", *TOOL.split()]]


def test_a_peer_that_cannot_be_had_is_told_and_not_judged() -> None:
    found = {"tiny": {RELAY: 7.0}}
    assert too_low(found, RECORDED) == {}
    assert [line.split()[-1] for line in lines_of(found, RECORDED, {})] == ["here", "7.00", "here"]


@pytest.mark.parametrize("good_at", [1, 2, 3])
def test_the_best_of_three_is_judged(good_at: int) -> None:
    found = {"tiny": {TOOL: 5.0, RELAY: 6.0}}
    asked: list[tuple[str, set[str]]] = []

    def again(section: str, peers: Collection[str]) -> dict[str, float]:
        asked.append((section, set(peers)))
        return {TOOL: 12.0 if len(asked) == good_at else 4.0, RELAY: 1.0}

    low = looked_at_again(found, RECORDED, again)
    assert asked == [("tiny", {TOOL})] * min(good_at, AGAIN)
    assert found["tiny"] == {TOOL: 12.0 if good_at <= AGAIN else 5.0, RELAY: 6.0}, "others stay as they were"
    assert low == ({} if good_at <= AGAIN else {"tiny": {TOOL}})
    assert ("TOO LOW" in lines_of(found, RECORDED, low)[0]) == bool(low)


def test_what_is_planned_is_measured_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_ratios, "MANY_FILES", 20)
    assert measured_again("plan", {PLAN}).keys() == {PLAN}


def test_the_mirror_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"recipe": {"cpu_us": 120.0}, "native": {"cpu_us": 20.0}}
    load = {"300000": {"jdbc": {"cpu_us": 9.0}, "mirror": {"cpu_us": 6.0}}}
    printed = f"a line\n{json.dumps({'changes': {'12': costs}, 'load': load})}\n"
    monkeypatch.setattr(guard_ratios.subprocess, "run", lambda *_given, **_more: SimpleNamespace(stdout=printed))
    assert measured_again("mirror", {RECIPE}) == {RECIPE: 6.0, JDBC: 1.5}
