"""Check that a replica can continue at a position, before anything is read and before a relay log is touched.

In: the configuration and the stored position. Out: nothing, or the error with which the dump would end. The position is
looked up and compared (resume.py, content.py). Then a dump is started and ended at its first event (peek.py), because
only the server's own search shows what was purged.
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
    """Raise an error unless one of the configured servers can send the transactions after `stored`.

    Raises:
        PositionPurgedError: the server has removed them.
        PositionLostError: the server was reset, is another one, or has diverged.
        DisconnectedError: no server can be reached, or none has reached the position; the message names those that
            refused.
        ReplicaError: any other error of login or server. With several servers, it is the error of the first.
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
            raise DisconnectedError(error.message, hint=error.hint) from error  # tries the next server

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
            place_of_start(stored, there=False)  # before the content check, which uses a number that may occur twice
        compared = await verify_content(config, endpoint, stored, here, None)
        if place_of_start(stored, there=compared.there) is not None:
            return  # a place that exists proves that the transactions after it were not removed
        await probe(
            login,
            stored.position,
            strict_mode=config.gtid_strict_mode,
            ignore_duplicates=config.gtid_ignore_duplicates,
        )
