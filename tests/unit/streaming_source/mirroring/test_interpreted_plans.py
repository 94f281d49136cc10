"""Plans of small targets are interpreted, those of large ones compiled, and what the user has set is left alone."""

from __future__ import annotations

import pytest

from streaming_source.mirroring.interpreted_plans import COMPILED, INTERPRETED, MOST_ROWS, InterpretedPlans


class Session:
    """A session's settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self

    def get(self, name: str, *default: str | None) -> str | None:
        return self.settings.get(name, *default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


def test_each_target_gets_the_plans_of_its_size_whatever_came_before() -> None:
    session, plans = Session(other="1"), InterpretedPlans()
    for rows, expected in ((0, INTERPRETED), (MOST_ROWS + 1, COMPILED), (MOST_ROWS, INTERPRETED), (10**9, COMPILED)):
        plans.fit(session, rows)  # type: ignore[arg-type]
        assert session.settings == {"other": "1", **expected}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in INTERPRETED for value in ("true", "FALLBACK")])
@pytest.mark.parametrize("rows", [1, 10**9])
def test_what_the_user_has_set_stays(name: str, value: str, rows: int) -> None:
    session, plans = Session(**{name: value}), InterpretedPlans()
    for _ in range(2):
        plans.fit(session, rows)  # type: ignore[arg-type]
        assert session.settings == {name: value}
