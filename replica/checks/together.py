"""Several servers for one replica: do they have one history, so that it may go from one to the other?"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from replica.checks.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.checks.facts import ServerFacts
    from replica.config import Endpoint

    Servers = Mapping[Endpoint, ServerFacts]


def together(servers: Servers) -> Iterator[Result]:
    """Nothing for fewer than two."""
    if len(servers) < 2:
        return
    yield from _ids(servers)
    strangers = [
        Result("history", "missing", *_diverged(one, other, facts, servers[other]))
        for (one, facts), other in ((item, other) for item in servers.items() for other in servers)
        if one != other and _foreign(facts, servers[other])
    ]
    yield from strangers or [
        Result("history", "ok", "each server's transactions are known to the others, or may yet be")
    ]
    for one, other in permutations(servers, 2):
        lacking = [g for g in servers[one].primary.position if g.domain_id not in servers[other].primary.position]
        if lacking:
            names = ", ".join(map(str, lacking))
            what = f"{other} has nothing of domain {lacking[0].domain_id} in its binlog, where {one} is at {names}"
            fix = f"let {other} replicate from {one}, with log_slave_updates=ON"
            yield Result("domains", "warning", what, fix)


def _ids(servers: Servers) -> Iterator[Result]:
    by_id: dict[int, list[Endpoint]] = {}
    for endpoint, facts in servers.items():
        by_id.setdefault(facts.info.server_id, []).append(endpoint)
    shared = {number: names for number, names in by_id.items() if len(names) > 1}
    for number, names in shared.items():
        what = (
            f"{' and '.join(map(str, names))} both have server_id {number}: one server, or two that write alike GTIDs"
        )
        yield Result("server ids", "warning", what, "give each server a server_id of its own in its configuration file")
    if not shared:
        yield Result("server ids", "ok", ", ".join(f"{e} has {f.info.server_id}" for e, f in servers.items()))


def _foreign(facts: ServerFacts, other: ServerFacts) -> bool:
    """Whether `other` has gone past what `facts` has last in some domain, without ever having had that."""
    return any(
        (at := other.primary.position.get(gtid.domain_id)) is not None
        and at.seq_no >= gtid.seq_no
        and not any(
            (have.domain_id, have.server_id) == (gtid.domain_id, gtid.server_id) and have.seq_no >= gtid.seq_no
            for have in other.binlog_state
        )
        for gtid in facts.primary.position
    )


def _diverged(one: Endpoint, other: Endpoint, facts: ServerFacts, theirs: ServerFacts) -> tuple[str, str]:
    what = (
        f"{one} is at {facts.primary.position}, which {other} (at {theirs.primary.position}) has passed without having "
        "it: a replica of the one is refused by the other"
    )
    return what, f"rebuild the wrong one of the two as a replica of the right one, or leave it out of host ({other})"
