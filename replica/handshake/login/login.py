"""Login to a server: connect, authenticate, run steps, and hand over the socket.

In: a configuration and an endpoint. Out: a `Login` that runs step generators, and finally a `Detached` transport.
`Detached` is the same connection without the driver and with reading paused, so that no byte of the stream passes
through aiomysql's packet reader. aiomysql's reader is five times slower, and fails at the sequence numbers of a
semi-synchronous stream.

The peer may be any program. Invalid data of the peer ends in a `ReplicaError`, after a bounded number of bytes and a
bounded time.

Source: sql/sql_parse.cc, 10.11: a connection cannot be used after a dump command, so `dump` uses up a login. The source
for the restart of the sequence numbers is in protocol/packets/packets.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import tenacity

from replica.errors import DisconnectedError, ProtocolError, ReplicaError, ServerError
from replica.handshake.login.connection import DriverConnection
from replica.handshake.login.driver import DriverError, error_of, unread
from replica.handshake.login.refusals import translated
from replica.handshake.login.session_settings import refuse_others, settle_session
from replica.handshake.registration import MAX_REPLY_BYTES, Query, Rows, Step, Steps
from replica.protocol.packets.packets import com_query, is_eof
from replica.protocol.packets.results import ErrorReply, read_reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from replica.options.config import Endpoint, ReplicaConfig

_Result = TypeVar("_Result")

STATEMENT_TIMEOUT_S = 120.0
"""Timeout of one step in seconds. BINLOG_GTID_POS reads the binlog file up to the position, and a gigabyte on a slow
disk takes most of a minute. Measured on 10.5 and 10.11: 0.6 to 2 s a gigabyte from memory. 11.8 has an index.
"""

PROBE_BYTES = 1 << 20
"""Maximum number of bytes that are read of an event, if only its header matters or the event has to be short."""
_SHOWN_SQL = 60
_NO_SERVER = "No MariaDB server answers like this. Check which program listens there."


@dataclass(frozen=True, slots=True)
class Detached:
    """Connection without the driver, with reading paused. `leftover` holds bytes that were received before.

    Keep this object as long as the transport is used: asyncio's StreamWriter closes its transport when it is collected.
    """

    transport: asyncio.Transport
    leftover: bytes
    writer: asyncio.StreamWriter
    tls: str = ""
    """TLS version and cipher; empty without TLS."""
    compressed: bool = False


class Login:
    """Logged-in connection. `run()` runs step generators over the connection, and `detach()` takes the socket from the
    driver.
    """

    def __init__(self, connection: DriverConnection, endpoint: Endpoint) -> None:
        self._connection = connection
        self.endpoint = endpoint

    @property
    def thread_id(self) -> int:
        """The server's id of this connection, as SHOW PROCESSLIST prints it."""
        return self._connection.greeting.thread_id

    @property
    def tls(self) -> str:
        """TLS version and cipher in use; empty without TLS."""
        return self._connection.tls

    @property
    def compressed(self) -> bool:
        """Whether the connection is compressed."""
        return self._connection.compressed

    @property
    def plugin(self) -> str:
        """Name of the client's authentication plugin that logged us in."""
        return self._connection.plugin

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Run each step and send its rows into the generator. An ERR packet is thrown into it as a ServerError.

        Raises:
            DisconnectedError: the connection ended or a step took longer than STATEMENT_TIMEOUT_S.
            ServerError: an ERR packet that the generator did not handle.
            ProtocolError: an answer is invalid, too long, or makes no sense to the generator.
        """
        try:
            step = next(steps)
            while True:
                try:
                    rows = await self._perform(step)
                except ServerError as error:
                    step = steps.throw(error)
                else:
                    step = self._send_rows(steps, step, rows)
        except StopIteration as done:
            return done.value

    def _send_rows(self, steps: Steps[_Result], step: Step, rows: Rows) -> Step:
        try:
            return steps.send(rows)
        except (ReplicaError, StopIteration):
            raise
        except Exception as error:
            # Generators assume that an answer fits their statement, but another kind of peer may send any data.
            what = step.sql if isinstance(step, Query) else "a command"
            message = f"{self.endpoint} answered {what[:_SHOWN_SQL]!r} with an invalid reply: {error!r}."
            raise ProtocolError(message, hint=_NO_SERVER) from error

    async def _perform(self, step: Step) -> Rows:
        async with self._translating():
            if isinstance(step, Query):
                return await self._query(step)
            await self._send(step.payload, replies=step.replies)
            return ()

    @contextlib.asynccontextmanager
    async def _translating(self, until: float | None = None) -> AsyncIterator[None]:
        """Limit the time (by the loop's clock), and convert the driver's errors to ours."""
        if self._connection.closed:
            raise DisconnectedError(f"the connection to {self.endpoint} is closed.")
        try:
            async with asyncio.timeout(STATEMENT_TIMEOUT_S) if until is None else asyncio.timeout_at(until):
                yield
        except TimeoutError:
            self.close()
            raise DisconnectedError(f"{self.endpoint} gave no answer within {STATEMENT_TIMEOUT_S:.0f} s.") from None
        except (DriverError, OSError) as error:
            raise translated(error, self.endpoint) from None
        except ProtocolError as error:
            self.close()
            raise said_by(self.endpoint, error) from None

    async def _query(self, step: Query) -> Rows:
        connection = self._connection
        connection.expect(step.most_bytes)
        # None and an empty tuple differ: with a tuple, % in the text is a placeholder.
        arguments = tuple(connection.escape(argument) for argument in step.arguments)
        await self._write(com_query(step.sql % arguments if arguments else step.sql))
        reading = read_reply()
        next(reading)
        try:
            while True:
                reading.send(await connection.read_payload())
        except StopIteration as done:
            connection.server_status = done.value.status  # for example whether backslashes are escapes
            return done.value.rows
        except ErrorReply as error:
            raise error_of(error.packet) from None

    async def _send(self, payload: bytes, *, replies: bool) -> None:
        connection = self._connection
        connection.expect(MAX_REPLY_BYTES)
        if not replies:
            # The answer is the stream, which belongs to the code that takes the transport.
            connection.transport.pause_reading()
        await self._write(payload)
        if replies:
            await connection.read_reply()

    async def _write(self, payload: bytes) -> None:
        self._connection.count_on(0)
        self._connection.write_packet(payload)
        await self._connection.writer.drain()

    async def dump(self, command: bytes, *, longest: int = PROBE_BYTES) -> AsyncGenerator[bytes]:
        """Send a dump command and yield its events until the server sends EOF.

        The events pass through the driver, so use this for few events only. An event beyond `longest` bytes is cut
        there and is the last one, because the connection is closed after it.

        Raises:
            DisconnectedError: the connection ended, or the caller needed more than STATEMENT_TIMEOUT_S.
            ServerError: an ERR packet.
            ProtocolError: the server sent more bytes than allowed before the caller stopped.
        """
        connection = self._connection
        until = asyncio.get_running_loop().time() + STATEMENT_TIMEOUT_S
        async with self._translating(until):
            await self._send(command, replies=False)
            connection.expect(MAX_REPLY_BYTES + longest)
            connection.transport.resume_reading()
        while True:
            async with self._translating(until):
                payload = await connection.read_reply(longest + 1)
            if is_eof(payload):
                return
            yield payload[1:]  # after the status byte

    def detach(self) -> Detached:
        """Take the socket from the driver. The login cannot be used afterwards."""
        connection = self._connection
        if connection.streams is None:
            raise DisconnectedError(f"the connection to {self.endpoint} was lost before the stream began.")
        reader, writer = connection.streams
        transport, tls = connection.transport, connection.tls
        connection.streams = None
        transport.pause_reading()
        return Detached(transport, unread(reader), writer, tls, connection.compressed)

    def close(self) -> None:
        self._connection.close()


def said_by(endpoint: Endpoint, error: ProtocolError) -> ProtocolError:
    """Return the same error with the server's name, which shows the wrong one of several hosts."""
    return type(error)(f"{endpoint}: {error.message}.", hint=error.hint or _NO_SERVER)


async def log_in(config: ReplicaConfig, endpoint: Endpoint) -> Login:
    """Connect, authenticate and set the session's variables. The connection has TCP_NODELAY and keep-alive.

    Raises:
        AuthenticationError: either side refuses the account, the password, the plugin or the TLS set-up.
        DisconnectedError: the server cannot be reached, or not within `connect_timeout_s`.
        ConfigError: the password file or a TLS file cannot be read.
        PrerequisiteError: the session does not keep the settings that it was given.
        ProtocolError: the peer is no server, or sends too much.
    """
    connection = DriverConnection(config, endpoint)
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(connection.close)
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                await connection.open()
        except TimeoutError:
            message = f"{endpoint} did not complete the login within {config.connect_timeout_s:g} s."
            hint = (
                "Check host and port, whether the server is up, and firewalls. A slow server needs a longer "
                "connect_timeout."
            )
            raise DisconnectedError(message, hint=hint) from None
        except (DriverError, OSError, EOFError) as error:
            raise translated(error, endpoint) from None
        except ProtocolError as error:
            raise said_by(endpoint, error) from None
        except ReplicaError:
            raise
        except Exception as error:
            # The driver reads the first replies itself, and may raise an IndexError on an unexpected reply.
            message = f"the login at {endpoint} ended with an invalid reply: {error!r}."
            raise ProtocolError(message, hint=_NO_SERVER) from error
        login = Login(connection, endpoint)
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                found = await login.run(settle_session())
        except TimeoutError:
            message = f"{endpoint} did not answer the first statement within {config.connect_timeout_s:g} s."
            hint = "The server runs its init_connect first. Check what that waits for, or raise connect_timeout."
            raise DisconnectedError(message, hint=hint) from None
        try:
            refuse_others(found)
        except ProtocolError as error:
            raise said_by(endpoint, error) from None
        unless_done.pop_all()
    return login


# A primary may be restarting, so broken connections are retried with back-off over the configured hosts for
# `connect_retry_s`. A host that does not speak the protocol is skipped while another host may answer. Every other error
# is raised at once.


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
