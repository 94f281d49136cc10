from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from replica.commands.check.continuation import together
from replica.handshake.start.start import gtids
from replica.options.config import Endpoint
from replica.protocol.gtid import GtidPosition
from tests.unit.commands.check.facts import GOOD, INFO, PRIMARY

if TYPE_CHECKING:
    from replica.commands.check.server import ServerFacts

A, B = Endpoint("a", 3306), Endpoint("b", 3306)


def server(number: int, state: str, **more: object) -> ServerFacts:
    """With this @@gtid_binlog_state, in the order of its binlog."""
    return dataclasses.replace(
        GOOD,
        info=dataclasses.replace(INFO, **{"server_id": number, "uid": str(number), **more}),  # type: ignore[arg-type]
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
    assert states(server(1, "0-1-100"), server(1, "0-1-100", uid="clone"))["server ids"] == "warning"


def test_one_server_by_two_names_is_no_second_one() -> None:
    (one,) = [one for one in together({A: server(1, "0-1-5"), B: server(1, "0-1-5")}) if one.check == "server ids"]
    assert one.state == "warning"
    assert "are the same server" in one.what


def node(number: int, state: str, **more: object) -> ServerFacts:
    galera = {"wsrep_on": True, "wsrep_gtid_mode": True, "wsrep_gtid_domain_id": 7, "gtid_domain_id": 100 + number}
    return server(5, state, **{**galera, "uid": str(number), **more})


def test_galera_nodes_with_one_server_id_are_as_they_should_be() -> None:
    """What `check` asks for it must not call wrong."""
    assert states(node(1, "7-5-9,101-5-1"), node(2, "7-5-9,102-5-3")) == {"server ids": "ok", "history": "ok"}


def test_galera_nodes_that_number_apart() -> None:
    one = node(1, "7-5-9")
    assert states(one, node(2, "7-5-9", wsrep_gtid_domain_id=8))["wsrep_gtid_domain_id"] == "missing"
    assert states(one, node(2, "7-5-9", server_id=6))["server ids"] == "warning"
    assert states(one, node(2, "7-5-9", gtid_domain_id=101))["gtid_domain_id"] == "warning"
    assert states(one, node(2, "7-5-9", gtid_domain_id=7))["gtid_domain_id"] == "warning"


def test_a_domain_that_one_of_them_lacks() -> None:
    found = [one for one in together({A: server(1, "0-1-5,7-1-9"), B: server(2, "0-1-5")}) if one.check == "domains"]
    (one,) = found
    assert one.state == "warning"
    assert "7-1-9" in one.what
    assert one.fix.startswith("let b:3306 replicate from a:3306")
