from __future__ import annotations

from replica.errors import PositionLostError, PrerequisiteError
from replica.live.connect import Hosts
from replica.options.values import Endpoint

A, B = Endpoint("a", 1), Endpoint("b", 2)


def test_they_are_tried_in_turn() -> None:
    hosts = Hosts([A, B])
    seen = []
    for _ in range(3):
        seen.append(hosts.current)
        hosts.advance()
    assert seen == [A, B, A]
    assert hosts.several
    assert not Hosts([A]).several


def test_others_take_their_places_and_one_that_stays_keeps_its_turn() -> None:
    hosts, c = Hosts([A, B]), Endpoint("c", 3)
    hosts.refused(PositionLostError("gone"))
    hosts.advance()
    hosts.refused(PositionLostError("gone too"))
    hosts.replace([c, B])
    assert (hosts.current, hosts.refusals) == (B, "b:2: gone too")
    hosts.replace([A, c])
    assert (hosts.current, hosts.refusals, hosts.verdict) == (A, "", None)


def test_a_single_one_ends_it_with_its_own_error() -> None:
    hosts, error = Hosts([A]), PositionLostError("gone", code=1236, hint="Start anew.")
    assert hosts.verdict is None
    hosts.refused(error)
    assert hosts.verdict is error


def test_only_all_of_them_end_it_and_each_is_named() -> None:
    hosts = Hosts([A, B])
    first, second = PositionLostError("diverged", code=1236, hint="Copy anew."), PrerequisiteError("no binlog")
    assert hosts.refused(first)
    assert hosts.verdict is None
    assert not hosts.refused(PositionLostError("diverged", code=1236, hint="Copy anew.")), "the same again is no news"
    hosts.advance()
    assert hosts.refused(second)
    verdict = hosts.verdict
    assert isinstance(verdict, PositionLostError), "the first host's kind gives the exit code"
    assert (verdict.code, verdict.hint) == (1236, "Copy anew.")
    assert "a:1: diverged" in verdict.message
    assert "b:2: no binlog" in verdict.message
    assert first.message == "diverged"


def test_a_connection_of_use_clears_what_was_said() -> None:
    hosts = Hosts([A, B])
    hosts.refused(PrerequisiteError("no binlog"))
    hosts.advance()
    hosts.served()
    hosts.refused(PrerequisiteError("no binlog"))
    assert hosts.verdict is None
    assert hosts.refusals == "b:2: no binlog"


def test_a_host_named_twice_counts_once() -> None:
    hosts = Hosts([A, A])
    hosts.refused(PrerequisiteError("no binlog"))
    assert hosts.verdict is not None
