"""The rooms that tests lie over: a bare Debian, and one in which root has run the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tools.rooms.room import Ran, Room, base

if TYPE_CHECKING:
    from collections.abc import Iterator


class SetUp(NamedTuple):
    """A room in which the demo was run once, and what it printed."""

    room: Room
    demo: Ran


@pytest.fixture
def bare() -> Iterator[Room]:
    with Room(base()) as room:
        yield room


@pytest.fixture(scope="session")
def set_up() -> Iterator[SetUp]:
    with Room(base()) as room:
        room.add_project()
        yield SetUp(room, room.run("scripts/demo"))


@pytest.fixture
def room(set_up: SetUp) -> Iterator[Room]:
    """A room over the one in which everything is set up."""
    with Room(*set_up.room.files) as room:
        yield room
