"""Check that this server can continue from the end of the relay log, or from the position in `start`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.checks.result import Result
from replica.errors import DisconnectedError, PositionLostError
from replica.handshake.start.content import verify_content
from replica.handshake.start.resume import HINT, Stored, verify
from replica.protocol.gtid import GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import last_event

if TYPE_CHECKING:
    from pathlib import Path

    from replica.checks.machine.relay_end import RelayEnd
    from replica.checks.server.facts import ServerFacts
    from replica.handshake.login.login import Login
    from replica.handshake.primary.server import ServerInfo
    from replica.handshake.registration import Steps
    from replica.options.config import ReplicaConfig


def position(facts: ServerFacts, end: RelayEnd | None, config: ReplicaConfig) -> Steps[Result | PositionLostError]:
    """Return the finding, or the error with which a replica would end on this server.

    Raises:
        ConfigError: `start` is no position.
    """
    if end is None and config.start in ("latest", "earliest"):
        where = facts.primary.position if config.start == "latest" else facts.oldest
        words = f"after {where}" if where else "at the very beginning"
        return Result("position", "ok", f"a first start with start={config.start} would begin {words}")
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
    """Return the error if the server has another transaction in place of our last one, as after a reset; else None."""
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
    """Return the error for a position before the oldest file, or None (sql_repl.cc: contains_all_slave_gtid)."""
    gone = [gtid for gtid in oldest or () if (have := wanted.get(gtid.domain_id)) is None or have.seq_no < gtid.seq_no]
    if not gone:
        return None
    return PositionLostError(
        f"the binlogs after {wanted or 'the very beginning'} are purged: the oldest starts after {oldest}.", hint=HINT
    )
