"""Shuffles are as large as the targets, and never larger than the user allows."""

from __future__ import annotations

import pytest

from streaming_source.mirroring.shuffle_size import MOST, PARTS, ShuffleSize, shuffle_parts


@pytest.mark.parametrize(
    ("rows", "cores", "most", "parts"),
    [
        (0, 2, 200, 2),
        (1_000_000, 2, 200, 2),
        (1_000_001, 2, 200, 3),
        (10_000_000, 2, 200, 20),
        (10**9, 2, 200, 200),
        (10**9, 2, 8, 8),
        (0, 16, 4, 4),
        (0, 0, 200, 1),
    ],
)
def test_parts_grow_with_the_target_between_the_cores_and_what_is_set(
    rows: int, cores: int, most: int, parts: int
) -> None:
    assert shuffle_parts(rows, cores, most) == parts


class Session:
    """A session's settings, and its cores."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self.sparkContext = self
        self.defaultParallelism = 2

    def get(self, name: str, *default: str | None) -> str | None:
        return self.settings.get(name, *default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


@pytest.mark.parametrize(("given", "most"), [({}, 40), ({PARTS: "9"}, 9)])
def test_what_the_user_has_set_stays_the_limit_in_later_batches(given: dict[str, str], most: int) -> None:
    session, size = Session(**{MOST: "40", **given}), ShuffleSize()
    size.fit(session, 1)  # type: ignore[arg-type]
    assert session.settings[PARTS] == "2"
    size.fit(session, 10**9)  # type: ignore[arg-type]
    assert session.settings[PARTS] == str(most)
    assert session.settings[MOST] == "40"
