"""A few seconds of what `scripts/prove fuzz` does for an hour, and whether it would notice a fault."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.fuzz.planted import AT
from tools.fuzz.__main__ import run
from tools.fuzz.corpus import corpus
from tools.fuzz.worker import TRUNCATIONS, case


def test_damaged_events_raise_our_errors_only() -> None:
    outcome = run(seed=2, first=0, count=1500)
    assert outcome.failure == "", outcome.output
    assert outcome.cases == 1500


def test_truncated_events_raise_our_errors_only() -> None:
    step = 499
    count = corpus().truncations // step
    outcome = run(seed=TRUNCATIONS, first=0, count=count, step=step)
    assert outcome.failure == "", outcome.output
    assert outcome.cases == count > 1000


@pytest.mark.parametrize(
    ("fault", "failure", "words"),
    [
        ("error", "case 2:5 ended the process with 1", "KeyError"),
        ("crash", "case 2:5 ended the process with -11", "Segmentation fault"),
        ("memory", "case 2:5 ended the process with 1", "MemoryError"),
    ],
)
def test_a_fault_is_noticed_and_named(fault: str, failure: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", fault)
    outcome = run(seed=2, first=0, count=20, worker="tests.unit.fuzz.planted")
    assert outcome.failure == failure, outcome.output
    assert words in outcome.output


def test_a_case_that_hangs_is_noticed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "hang")
    # The first case there is: a machine that stands still for a moment must not make an earlier one look hung.
    outcome = run(seed=2, first=AT, count=20, worker="tests.unit.fuzz.planted", stall=0.3)
    assert outcome.failure == "case 2:5 hangs", outcome.output


def test_a_case_is_the_same_each_time() -> None:
    of = corpus()
    assert [case(of, 7, number)[:2] for number in range(50)] == [case(of, 7, number)[:2] for number in range(50)]
    changed = [case(of, 7, number) for number in range(200)]
    assert sum(found != group.events for group, found, _ in changed) > 190


def test_the_corpus_has_every_kind_of_event_that_can_be_had() -> None:
    kinds = {event[4] for event in corpus().events}
    assert kinds >= {2, 3, 4, 5, 13, 14, 15, 16, 17, 18, 19, 29, 30, 31, 32, 33, 34, 35, 38, 39, 40, 42}
    assert kinds >= {23, 24, 25, 160, 161, 162, 163, 165, 166, 167, 168, 172}


def test_truncations_are_all_there() -> None:
    of = corpus()
    group, cut = of.truncation(0)
    assert cut == [b""]
    group, cut = of.truncation(of.truncations - 1)
    assert len(cut[-1]) == len(group.events[-1]) - 1
    with pytest.raises(IndexError):
        of.truncation(of.truncations)


def test_the_wall_is_where_the_data_ends() -> None:
    program = (
        "import ctypes, sys; from tools.fuzz.guarded import Guarded\n"
        "g = Guarded(5000); a = g.put(b'x' * 77); at = a.__array_interface__['data'][0]\n"
        "print(ctypes.string_at(at, 77 + int(sys.argv[1])), flush=True)"
    )
    outcomes = [
        subprocess.run([sys.executable, "-c", program, beyond], capture_output=True, check=False).returncode
        for beyond in ("0", "1")
    ]
    assert outcomes == [0, -11]
