from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from replica.checks.together import together
from replica.config import Endpoint
from replica.handshake.start import gtids
from replica.protocol.gtid import GtidPosition
from tests.unit.checks.facts import GOOD, INFO, PRIMARY

if TYPE_CHECKING:
    from replica.checks.facts import ServerFacts

A, B = Endpoint("a", 3306), Endpoint("b", 3306)


def server(number: int, state: str) -> ServerFacts:
    """With this @@gtid_binlog_state, in the order of its binlog."""
    return dataclasses.replace(
        GOOD,
        info=dataclasses.replace(INFO, server_id=number),
        primary=dataclasses.replace(PRIMARY, position=GtidPosition.last_of(gtids(state))),
        binlog_state=frozenset(gtids(state)),
    )


def states(one: ServerFacts, other: ServerFacts) -> dict[str, str]:
    return {found.check: found.state for found in together({A: one, B: other})}


def test_one_server_has_nothing_to_agree_on() -> None:
    assert list(together({A: server(1, "0-1-5")})) == []


def test_a_primary_and_its_replica() -> None:
    good = {"server ids": "ok", "history": "ok"}
    assert states(server(1, "0-1-100"), server(2, "0-1-100")) == good
    assert states(server(1, "0-1-100"), server(2, "0-1-90")) == good
    assert states(server(1, "0-1-100"), server(2, "0-1-100,0-2-105")) == good


def test_servers_that_wrote_the_same_numbers_apart() -> None:
    assert states(server(1, "0-1-100"), server(2, "0-1-90,0-2-101"))["history"] == "missing"
    assert states(server(1, "0-1-90,0-3-101"), server(2, "0-1-90,0-2-101"))["history"] == "missing"


def test_two_servers_with_one_id_may_write_alike_gtids() -> None:
    assert states(server(1, "0-1-100"), server(1, "0-1-100"))["server ids"] == "warning"


def test_a_domain_that_one_of_them_lacks() -> None:
    found = [one for one in together({A: server(1, "0-1-5,7-1-9"), B: server(2, "0-1-5")}) if one.check == "domains"]
    (one,) = found
    assert one.state == "warning"
    assert "7-1-9" in one.what
    assert one.fix.startswith("let b:3306 replicate from a:3306")
