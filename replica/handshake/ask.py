"""A question to the primary over a connection of its own: log in, hold the conversation, hang up.

In: a configuration and a conversation (steps, made again for each attempt). Out: its result. A broken connection is
tried again with back-off, the configured hosts in turn, for `connect_retry_s`: a primary may be restarting. A host that
does not speak the protocol is passed over while another one may. Every other error is the answer.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, TypeVar

import tenacity

from replica.errors import DisconnectedError, ProtocolError
from replica.handshake.login.login import log_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint, ReplicaConfig

_Result = TypeVar("_Result")


async def ask(config: ReplicaConfig, question: Callable[[Endpoint], Steps[_Result]]) -> _Result:
    """Return the result of `question`, which is told the server it is put to; errors as with `attempt`."""

    async def once(endpoint: Endpoint) -> _Result:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            return await login.run(question(endpoint))

    return await attempt(config, once)


async def attempt(config: ReplicaConfig, conversation: Callable[[Endpoint], Awaitable[_Result]]) -> _Result:
    """Repeat as a whole, in the same way, a conversation that makes its own connections.

    Raises:
        DisconnectedError: no server could be asked within `connect_retry_s`.
        ProtocolError: not one of the hosts speaks the protocol.
        ReplicaError: whatever login or conversation raise.
    """
    endpoints = itertools.cycle(config.endpoints)
    no_servers: set[Endpoint] = set()

    async def once() -> _Result:
        endpoint = next(endpoints)
        try:
            return await conversation(endpoint)
        except ProtocolError:
            no_servers.add(endpoint)
            raise

    def another_may_do(error: BaseException) -> bool:
        if isinstance(error, ProtocolError):
            return len(no_servers) < len(set(config.endpoints))
        return isinstance(error, DisconnectedError)

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(another_may_do),
        wait=tenacity.wait_random_exponential(config.backoff_initial_s, config.backoff_max_s),
        stop=tenacity.stop_after_delay(config.connect_retry_s),
        reraise=True,
    )
    return await retrying(once)
