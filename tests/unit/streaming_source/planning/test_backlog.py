"""The bytes between two places that move: each complete file is looked at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from replica.relay_log.location import RelayLocation, relay_path
from streaming_source.planning import admission
from streaming_source.planning.admission import Backlog

FILES = {number: 1000 + number for number in range(3, 30)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, size in FILES.items():
        relay_path(tmp_path, number).write_bytes(bytes(size))
    return tmp_path


def _between(start: RelayLocation, end: RelayLocation) -> int:
    return sum(FILES[n] for n in range(start.file, end.file)) - start.offset + end.offset


def test_any_two_places_that_move_forward(folder: Path) -> None:
    chance = random.Random(5)
    for _ in range(20):
        backlog = Backlog(folder)
        places = sorted(RelayLocation(chance.choice(list(FILES)), chance.randrange(1000)) for _ in range(20))
        start = end = places[0]
        for place in places:
            end = place
            if chance.random() < 0.5:
                start = chance.choice([p for p in places if start <= p <= end])
            assert backlog.bytes(start, end) == _between(start, end)


def test_a_complete_file_is_looked_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog, looks, stat = Backlog(folder), [0], Path.stat

    def counted(path: Path, **options: bool) -> object:
        looks[0] += 1
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", counted)
    for first in range(3, 29):
        backlog.bytes(RelayLocation(first, 4), RelayLocation(29, first))
    assert looks[0] == 26


def test_many_files_are_counted_over_several_calls_and_estimated_until_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "FILES_A_CALL", 10)
    backlog, places = Backlog(folder), (RelayLocation(3, 4), RelayLocation(29, 9))
    told = [backlog.bytes(*places) for _ in range(4)]
    assert told[2] == told[3] == _between(*places)
    assert all(abs(estimate - told[3]) < told[3] * 0.05 for estimate in told)
    assert told[0] != told[3]


def test_a_log_begun_anew_and_files_that_went_are_no_error(folder: Path) -> None:
    backlog = Backlog(folder)
    backlog.bytes(RelayLocation(5, 4), RelayLocation(29, 500))
    assert backlog.bytes(RelayLocation(3, 4), RelayLocation(4, 40)) == _between(
        RelayLocation(3, 4), RelayLocation(4, 40)
    )
    relay_path(folder, 4).unlink()
    assert backlog.bytes(RelayLocation(4, 4), RelayLocation(6, 40)) == 0 - 4 + FILES[5] + 40
