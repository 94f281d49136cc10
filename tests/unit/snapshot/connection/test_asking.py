"""Questions to a server: which errors have them asked again, over a new connection, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from replica.errors import DisconnectedError, PrerequisiteError, ServerError
from replica.snapshot.connection import connection
from replica.snapshot.connection.connection import ask_with_retries

if TYPE_CHECKING:
    from replica.snapshot.connection.connection import SnapshotConnection

LOCKED, NO_TABLE = 1205, 1146


class Connection:
    closed = 0

    def close(self) -> None:
        Connection.closed += 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "POLL_S", 0.0)
    Connection.closed = 0


def answers(*outcomes: object, patience_s: float = 60.0) -> object:
    left = iter(outcomes)

    def question(_: SnapshotConnection) -> object:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return ask_with_retries(lambda: cast("SnapshotConnection", Connection()), question, patience_s)


def server_error(code: int) -> ServerError:
    return ServerError("it says so.", code=code, sqlstate="HY000")


def test_a_lost_connection_and_an_error_that_passes_are_asked_again_over_a_new_one() -> None:
    assert answers(DisconnectedError("gone."), server_error(LOCKED), "names") == "names"
    assert Connection.closed == 3


@pytest.mark.parametrize("error", [server_error(NO_TABLE), PrerequisiteError("no key."), KeyError("ours")])
def test_every_other_error_is_the_answer(error: Exception) -> None:
    with pytest.raises(type(error)):
        answers(error, "names")
    assert Connection.closed == 1


def test_it_ends_when_patience_does() -> None:
    with pytest.raises(DisconnectedError, match="gone"):
        answers(DisconnectedError("gone."), "names", patience_s=0.0)
