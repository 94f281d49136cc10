"""When no commit can be under way: the threads of a server as its answers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.handshake.registration import Query
from replica.snapshot.watermark.low import ask_no_commit

if TYPE_CHECKING:
    from replica.handshake.registration import Rows

DUMP, OTHER_DUMP = ("7", "Binlog Dump"), ("8", "Binlog Dump")


def answered(before: Rows, running: int | None, after: Rows | None = None, galera: str | None = "OFF") -> bool:
    """What is made of the threads that the account is shown before and behind the count of those that run."""
    counted = [] if running is None else [("Threads_running", str(running))]
    counted += [] if galera is None else [("wsrep_connected", galera)]
    answers: list[Rows] = [before, counted, before if after is None else after]
    steps = ask_no_commit()
    step = next(steps)
    try:
        for rows in answers:
            assert isinstance(step, Query)
            step = steps.send(rows)
    except StopIteration as done:
        result: bool = done.value
        return result
    raise AssertionError(f"one more question: {step}")


@pytest.mark.parametrize("galera", ["OFF", None])
def test_dumps_and_the_session_that_asks_commit_nothing(galera: str | None) -> None:
    assert answered([], 1, galera=galera)
    assert answered([DUMP], 2, galera=galera)
    assert answered([DUMP, OTHER_DUMP], 3, [OTHER_DUMP, DUMP], galera)


def test_a_thread_that_the_account_is_not_shown_may_be_in_a_commit() -> None:
    assert not answered([DUMP], 3)
    assert not answered([], 2)


@pytest.mark.parametrize("command", ["Query", "Execute", "Slave_SQL", "Daemon", "Killed", "Connect", None])
def test_a_thread_that_does_not_dump_may_be_in_a_commit(command: str | None) -> None:
    assert not answered([DUMP, ("9", command)], 3)


def test_a_dump_that_ends_or_begins_while_threads_are_counted_is_none_of_them() -> None:
    assert not answered([DUMP, OTHER_DUMP], 3, [DUMP]), "another thread may have been the third one"
    assert not answered([DUMP], 2, [DUMP, OTHER_DUMP])
    assert not answered([DUMP], 2, [OTHER_DUMP])


def test_the_threads_of_galera_are_shown_as_asleep_while_they_commit() -> None:
    assert not answered([DUMP], 2, galera="ON")


def test_a_server_that_does_not_say_how_many_threads_run() -> None:
    assert not answered([], None)
