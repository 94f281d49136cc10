"""A question to the primary over a connection of its own: log in, hold the conversation, hang up.

In: a configuration and a conversation (steps, made anew for each attempt). Out: its result. A broken connection is
tried again with back-off, the configured hosts in turn, for `connect_retry_s`: a primary may be restarting. Every other
error is the answer.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, TypeVar

import tenacity

from replica.errors import DisconnectedError
from replica.handshake.login import log_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from replica.config import Endpoint, ReplicaConfig
    from replica.handshake.registration import Steps

_Result = TypeVar("_Result")


async def ask(config: ReplicaConfig, question: Callable[[Endpoint], Steps[_Result]]) -> _Result:
    """The result of `question`, which is told the server it is put to; errors as with `attempt`."""

    async def once(endpoint: Endpoint) -> _Result:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            return await login.run(question(endpoint))

    return await attempt(config, once)


async def attempt(config: ReplicaConfig, conversation: Callable[[Endpoint], Awaitable[_Result]]) -> _Result:
    """The same for a conversation that makes its own connections: it is repeated as a whole.

    Raises:
        DisconnectedError: no server could be asked within `connect_retry_s`.
        ReplicaError: whatever login or conversation raise.

    """
    endpoints = itertools.cycle(config.endpoints)

    async def once() -> _Result:
        return await conversation(next(endpoints))

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(DisconnectedError),
        wait=tenacity.wait_random_exponential(config.backoff_initial_s, config.backoff_max_s),
        stop=tenacity.stop_after_delay(config.connect_retry_s),
        reraise=True,
    )
    return await retrying(once)
