"""A conversation with the primary over its own connection: log in, run the steps, hang up.

In: a configuration, and a function that makes the steps for each attempt. Out: their result. A broken connection is
retried with back-off over the configured hosts for `connect_retry_s`, because a primary may be restarting. A host that
does not speak the protocol is skipped while another host may answer. Every other error is raised at once.
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
    """Return the result of `question`, which receives the endpoint that answers. Raise the errors of `attempt`."""

    async def once(endpoint: Endpoint) -> _Result:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            return await login.run(question(endpoint))

    return await attempt(config, once)


async def attempt(config: ReplicaConfig, conversation: Callable[[Endpoint], Awaitable[_Result]]) -> _Result:
    """Retry a whole conversation that makes its own connections.

    Args:
        config: the hosts and the back-off.
        conversation: runs once with an endpoint for each attempt.

    Raises:
        DisconnectedError: no server could be reached within `connect_retry_s`.
        ProtocolError: none of the hosts speaks the protocol.
        ReplicaError: any other error of login or conversation.
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
