"""Checks that a server can continue the relay log, and that several servers have one history.

`position` and `altered` check the stored position against one server, with the code that a start uses. `together`
compares the histories of all servers. Nothing is written, neither to the servers nor to the relay directory.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from replica.commands.check.report import Result
from replica.errors import DisconnectedError, PositionLostError
from replica.handshake.primary.server import GALERA_GTIDS
from replica.handshake.start.resume import HINT, Stored, verify, verify_content
from replica.protocol.gtid import GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import last_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from replica.commands.check.machine import RelayEnd
    from replica.commands.check.server import ServerFacts
    from replica.handshake.login.login import Login
    from replica.handshake.primary.server import ServerInfo
    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint, ReplicaConfig

    Servers = Mapping[Endpoint, ServerFacts]


def position(facts: ServerFacts, end: RelayEnd | None, config: ReplicaConfig) -> Steps[Result | PositionLostError]:
    """Check that a replica could start on this server.

    Args:
        facts: answers of the server.
        end: end of the relay log; None before the first start.
        config: options of the replica.

    Returns:
        The finding, or the error with which a replica would end on this server.

    Raises:
        ConfigError: `start` is no position.
    """
    if end is None and config.start in ("latest", "earliest"):
        where = facts.primary.position if config.start == "latest" else facts.oldest
        text = f"after {where}" if where else "at the very beginning"
        return Result("position", "ok", f"a first start with start={config.start} would begin {text}")
    stored = end.stored if end is not None else Stored(GtidPosition.parse(config.start))
    # With one host, no other host can have the missing groups.
    may_lag = len(config.endpoints) > 1 or config.gtid_ignore_duplicates
    try:
        yield from verify(stored, facts.info, may_lag=may_lag)
    except PositionLostError as error:
        return error
    except DisconnectedError as error:
        return Result("position", "warning", f"{error.message} {error.hint}", "wait until it has caught up")
    purged = purged_before(stored.position, facts.oldest)
    if purged is not None:
        return purged
    whose = "where the relay log ends" if end is not None else "the position of the option start"
    return Result("position", "ok", f"it can continue after {stored.position or 'the very beginning'}, {whose}")


async def altered(
    login: Login, config: ReplicaConfig, directory: Path, end: RelayEnd, server: ServerInfo
) -> PositionLostError | None:
    """Compare the last stored transaction with the server's transaction at the same place.

    Args:
        login: connection to the server, for queries; the comparison opens its own.
        config: options of the replica.
        directory: relay directory.
        end: end of its relay log.
        server: the server's answers.

    Returns:
        The error if the server has another transaction there, as after a reset; None if it has the same one, or lags.
    """
    may_lag = len(config.endpoints) > 1 or config.gtid_ignore_duplicates
    try:
        here = await login.run(verify(end.stored, server, may_lag=may_lag))
        await verify_content(
            config, login.endpoint, end.stored, here, last_event(RelayLog(directory), end.head.location)
        )
    except PositionLostError as error:
        return error
    except DisconnectedError:
        return None  # it lags, which another finding reports
    return None


def purged_before(wanted: GtidPosition, oldest: GtidPosition | None) -> PositionLostError | None:
    """Return the error if the server has purged transactions after `wanted`; else None.

    `oldest` is the position before the server's oldest file, or None if unknown. Source: contains_all_slave_gtid in the
    server's sql_repl.cc.
    """
    purged = [
        gtid for gtid in oldest or () if (have := wanted.get(gtid.domain_id)) is None or have.seq_no < gtid.seq_no
    ]
    if not purged:
        return None
    return PositionLostError(
        f"the binlogs after {wanted or 'the very beginning'} are purged: the oldest starts after {oldest}.", hint=HINT
    )


def together(servers: Servers) -> Iterator[Result]:
    """Compare the histories of several servers. Fewer than two servers give no finding."""
    if len(servers) < 2:
        return
    yield from _ids(servers)
    strangers = [
        Result("history", "missing", *_diverged(one, other, facts, servers[other]))
        for (one, facts), other in ((item, other) for item in servers.items() for other in servers)
        if one != other and _foreign(facts, servers[other])
    ]
    yield from strangers or [
        Result("history", "ok", "each server has the transactions of the others, or may still receive them")
    ]
    for one, other in permutations(servers, 2):
        lacking = [g for g in servers[one].primary.position if g.domain_id not in servers[other].primary.position]
        local = servers[other].info.wsrep_gtid_mode and servers[other].info.wsrep_on
        if local and servers[other].info.wsrep_gtid_domain_id not in {gtid.domain_id for gtid in lacking}:
            continue  # transactions of that node alone
        if lacking:
            names = ", ".join(map(str, lacking))
            what = f"{other} has nothing of domain {lacking[0].domain_id} in its binlog, where {one} is at {names}"
            fix = f"let {other} replicate from {one}, with log_slave_updates=ON"
            yield Result("domains", "warning", what, fix)


def _ids(servers: Servers) -> Iterator[Result]:
    nodes = {endpoint: facts.info for endpoint, facts in servers.items() if facts.info.wsrep_on}
    if len(nodes) == len(servers):
        yield from _galera(nodes)
        return
    same: dict[str, list[Endpoint]] = {}
    by_id: dict[int, list[Endpoint]] = {}
    for endpoint, facts in servers.items():
        same.setdefault(facts.info.uid, []).append(endpoint)
        by_id.setdefault(facts.info.server_id, []).append(endpoint)
    for names in same.values():
        if len(names) > 1:
            what = f"{_named(names)} are the same server: if it fails, there is no other"
            yield Result("server ids", "warning", what, "leave one of the names in host")
    shared = {number: names for number, names in by_id.items() if len({servers[one].info.uid for one in names}) > 1}
    for number, names in shared.items():
        what = f"{_named(names)} have server_id {number}: two servers that may write the same GTIDs"
        yield Result("server ids", "warning", what, "give each server its own server_id in its configuration file")
    if not shared and len(same) == len(servers):
        yield Result("server ids", "ok", ", ".join(f"{e} has {f.info.server_id}" for e, f in servers.items()))


def _galera(nodes: Mapping[Endpoint, ServerInfo]) -> Iterator[Result]:
    """Check the cluster's ids, following MariaDB's documentation.

    All nodes need one server id and one domain for replicated transactions, and each node another domain for the rest.
    """
    domains = {node.wsrep_gtid_domain_id for node in nodes.values()}
    if len(domains) > 1:
        what = f"wsrep_gtid_domain_id differs: {_each(nodes, 'wsrep_gtid_domain_id')}"
        yield Result("wsrep_gtid_domain_id", "missing", what, GALERA_GTIDS)
    own = [node.gtid_domain_id for node in nodes.values()]
    if len(set(own)) < len(own) or domains & set(own):
        what = (
            f"gtid_domain_id is {_each(nodes, 'gtid_domain_id')}, not a different one on each node besides "
            f"wsrep_gtid_domain_id {', '.join(map(str, sorted(domains, key=str)))}: what only one node has (MyISAM, "
            "wsrep_on=OFF) gets the numbers of other transactions"
        )
        yield Result("gtid_domain_id", "warning", what, GALERA_GTIDS)
    if len({node.server_id for node in nodes.values()}) > 1:
        what = f"nodes of one cluster have several server ids: {_each(nodes, 'server_id')}"
        yield Result("server ids", "warning", what, GALERA_GTIDS)
    else:
        yield Result("server ids", "ok", f"{next(iter(nodes.values())).server_id} on all nodes of the cluster")


def _each(nodes: Mapping[Endpoint, ServerInfo], name: str) -> str:
    return ", ".join(f"{getattr(node, name)} on {endpoint}" for endpoint, node in nodes.items())


def _named(endpoints: list[Endpoint]) -> str:
    return " and ".join(map(str, endpoints))


def _foreign(facts: ServerFacts, other: ServerFacts) -> bool:
    """Return True if `other` has passed the last GTID of `facts` in some domain without ever having had that GTID."""
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
        "it: the one refuses a replica of the other"
    )
    return what, f"rebuild the wrong one of the two as a replica of the right one, or leave it out of host ({other})"
