from __future__ import annotations

import pytest

from replica.errors import ServerError
from replica.handshake.primary.server import ServerThread, end_dump, is_leaving, namesake, this_thread
from replica.handshake.registration import Query, Rows
from tests.unit.handshake.steps import converse

Answers = dict[str, "Rows | ServerError"]

SELF: Answers = {"SELECT @@GLOBAL.server_id": [("1", "1700000000", "9", "10.0.0.9:6666")]}
LISTED: Answers = {**SELF, "SELECT ID": [("7",)]}
LEFT = ServerThread(1, 1_700_000_000, 7, "10.0.0.9:5555")
DENIED = ServerError("Access denied", code=1227)


def test_a_thread_is_told_by_the_servers_start_too() -> None:
    assert converse(this_thread(), SELF)[1] == ServerThread(1, 1_700_000_000, 9, "10.0.0.9:6666")


def test_our_dump_is_ended_and_nothing_else() -> None:
    said, ended = converse(end_dump(LEFT), LISTED)
    assert (said[-1], ended) == ("KILL 7", True)
    steps = end_dump(LEFT)
    next(steps)
    asked = steps.send([("1", "1700000000", "9", "10.0.0.9:6666")])
    assert isinstance(asked, Query)
    assert asked.arguments == ("7", "10.0.0.9:5555")
    said, ended = converse(end_dump(LEFT), SELF)
    assert (len(said), ended) == (2, False)
    gone = {**LISTED, "KILL 7": ServerError("Unknown thread id: 7", code=1094)}
    assert converse(end_dump(LEFT), gone)[1] is False
    with pytest.raises(ServerError):
        converse(end_dump(LEFT), {**LISTED, "KILL 7": ServerError("You are not owner of thread 7", code=1095)})


@pytest.mark.parametrize("other", [LEFT._replace(server_id=2), LEFT._replace(started=1_700_000_001)])
def test_another_run_of_the_server_is_not_even_asked(other: ServerThread) -> None:
    said, ended = converse(end_dump(other), LISTED)
    assert (len(said), ended) == (1, False)


def test_one_that_was_ended_and_has_not_left_is_told_by_all_of_it() -> None:
    said, leaving = converse(is_leaving(LEFT), LISTED)
    assert ("COMMAND = 'Killed'" in str(said[-1]), leaving) == (True, True)
    assert converse(is_leaving(LEFT), SELF)[1] is False
    assert converse(is_leaving(LEFT._replace(started=1)), LISTED)[1] is False


def test_a_namesake_is_waited_for_and_then_named() -> None:
    rows = [("3", "other", "3306", "1"), ("7", "twin", "0", "1")]
    said, found = converse(namesake(7, 1.0), {"SHOW SLAVE HOSTS": rows})
    assert found == "twin (port 0)"
    assert said.count("SHOW SLAVE HOSTS") == 5
    assert converse(namesake(8, 1.0), {"SHOW SLAVE HOSTS": rows}) == (["SHOW SLAVE HOSTS"], None)
    assert converse(namesake(7, 1.0), {"SHOW SLAVE HOSTS": DENIED}) == (["SHOW SLAVE HOSTS"], None)


def test_a_namesake_that_vanishes_is_none() -> None:
    steps = namesake(7, 1.0)
    next(steps)
    assert steps.send([("7", "", "0", "1")]) == Query("DO SLEEP(0.25)")
    assert steps.send([]) == Query("SHOW SLAVE HOSTS")
    with pytest.raises(StopIteration) as done:
        steps.send([("3", "other", "3306", "1")])
    assert done.value.value is None
