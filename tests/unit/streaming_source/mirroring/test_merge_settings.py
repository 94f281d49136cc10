"""MERGEs into small targets are interpreted and write files anew, and what the user has set is left alone."""

from __future__ import annotations

import pytest

from streaming_source.mirroring.merge_settings import (
    COMPILED,
    INTERPRETED,
    MARKED_ROWS,
    MOST_ROWS,
    MOST_WHOLE_ROWS,
    WHOLE_FILES,
    MergeSettings,
    TargetSize,
)

SIZES = [
    (TargetSize(0, 0), INTERPRETED | WHOLE_FILES),
    (TargetSize(MOST_ROWS + 1, 0), COMPILED | MARKED_ROWS),
    (TargetSize(MOST_ROWS, 1), INTERPRETED | WHOLE_FILES),
    (TargetSize(100_000, 4_999), COMPILED | MARKED_ROWS),
    (TargetSize(100_000, 5_000), COMPILED | WHOLE_FILES),
    (TargetSize(MOST_WHOLE_ROWS, MOST_WHOLE_ROWS), COMPILED | WHOLE_FILES),
    (TargetSize(MOST_WHOLE_ROWS + 1, MOST_WHOLE_ROWS), COMPILED | MARKED_ROWS),
    (TargetSize(10**9, 10**9), COMPILED | MARKED_ROWS),
]


class Session:
    """A session's settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self

    def get(self, name: str, *default: str | None) -> str | None:
        return self.settings.get(name, *default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


def test_each_target_gets_the_settings_of_its_size_whatever_came_before() -> None:
    session, settings = Session(other="1"), MergeSettings()
    for size, expected in (*SIZES, *reversed(SIZES)):
        settings.fit(session, size)  # type: ignore[arg-type]
        assert session.settings == {"other": "1", **expected}, size


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        *((name, value, WHOLE_FILES) for name in INTERPRETED for value in ("true", "FALLBACK")),
        *((name, value, INTERPRETED) for name in WHOLE_FILES for value in ("true", "false")),
    ],
)
def test_what_the_user_has_set_stays(name: str, value: str, others: dict[str, str]) -> None:
    session, settings = Session(**{name: value}), MergeSettings()
    for _ in range(2):
        for size, _ in SIZES:
            settings.fit(session, size)  # type: ignore[arg-type]
            assert session.settings.keys() == {name, *others}
            assert session.settings[name] == value
