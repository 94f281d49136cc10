"""Ask whether a replica can go on at this position, before anything is read and before a relay log is touched.

In: the configuration and where we stopped. Out: nothing, or the error that the dump would end with. The position is
looked up and compared (resume.py), then a dump is asked for and ended at its first event (peek.py), because only the
server's own search tells what was purged.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from replica.errors import DisconnectedError, ReplicaError
from replica.handshake.ask import attempt
from replica.handshake.login.login import log_in
from replica.handshake.primary.server import PROBING_ID, inspect_server
from replica.handshake.start.by_place import place_of_start
from replica.handshake.start.content import verify_content
from replica.handshake.start.peek import probe
from replica.handshake.start.resume import Here, Stored, verify

if TYPE_CHECKING:
    from replica.options.config import Endpoint, ReplicaConfig


async def check_start(config: ReplicaConfig, stored: Stored) -> None:
    """Raise unless one of the configured servers can send what follows `stored`.

    Raises:
        PositionPurgedError: the server has removed what follows.
        PositionLostError: the server was reset, is another one, or has diverged.
        DisconnectedError: no server can be reached, or none has got to the position; names those that refused.
        ReplicaError: whatever else login and server raise; with several servers, what the first one says.
    """
    refused: dict[Endpoint, ReplicaError] = {}

    async def one(endpoint: Endpoint) -> None:
        try:
            await _ask(config, endpoint, stored)
        except DisconnectedError:
            raise
        except ReplicaError as error:
            refused[endpoint] = error
            if len(refused) == len(set(config.endpoints)):
                raise refused[config.endpoints[0]] from None
            raise DisconnectedError(error.message, hint=error.hint) from error  # on to the next one

    try:
        await attempt(config, one)
    except DisconnectedError as error:
        others = {host: why for host, why in refused.items() if why.message not in error.message}
        if not others:
            raise
        told = " ".join(f"{host} refuses: {why.message}" for host, why in others.items())
        raise DisconnectedError(f"{error.message} {told}", hint=next(iter(others.values())).hint) from error


async def _ask(config: ReplicaConfig, endpoint: Endpoint, stored: Stored) -> None:
    may_lag = len(config.endpoints) > 1 or config.gtid_ignore_duplicates
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        here = await login.run(verify(stored, await login.run(inspect_server(PROBING_ID)), may_lag=may_lag))
        if here is not Here.PLACE:
            place_of_start(stored, there=False)  # before contents are compared by a number that may come twice
        compared = await verify_content(config, endpoint, stored, here, None)
        if place_of_start(stored, there=compared.there) is not None:
            return  # what follows a place that is there has not been removed
        await probe(
            login,
            stored.position,
            strict_mode=config.gtid_strict_mode,
            ignore_duplicates=config.gtid_ignore_duplicates,
        )
