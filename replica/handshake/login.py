"""The only file that knows the database driver: connect, log in, run steps, and let go of the socket.

In: a configuration and an endpoint. Out: a `Login` that runs step generators, and at last a `Detached` transport: the
same connection without the driver, reading paused, so that not one byte of the stream passes through aiomysql's packet
reader (which is five times slower and stops at the sequence numbers of a semi-synchronous stream).

Refused: a server without TLS when TLS is asked for (the driver alone would go on in plain text), a server that asks for
the password in clear text over an unencrypted connection, and authentication plugins that the driver lacks, by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pymysql.err
from aiomysql.connection import Connection
from aiomysql.cursors import Cursor
from pymysql.constants import CLIENT

from replica.errors import AuthenticationError, DisconnectedError, ReplicaError, ServerError
from replica.handshake.registration import Query, Rows, Step, Steps
from replica.handshake.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from replica.config import Endpoint, ReplicaConfig

_Result = TypeVar("_Result")

STATEMENT_TIMEOUT_S = 120.0
"""BINLOG_GTID_POS reads the binlog file up to the position: a gigabyte on a slow disk takes most of a minute."""

AUTHENTICATION_CODES = frozenset({1044, 1045, 1130, 1142, 1227, 1251, 1275, 1524, 1698, 1820, 1862, 2059, 3159, 4151})
"""Wrong account, password, plugin, host or privilege; TLS required; expired or locked. None mends itself."""
CONNECTION_CODES = frozenset({1040, 1053, 1129, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1927, 2003, 2006, 2013, 2014})
"""Too many connections, shutting down, killed, lost: another attempt may succeed."""

PLUGINS = ("mysql_native_password", "caching_sha2_password")
CLEAR_PASSWORD_PLUGIN = "mysql_clear_password"  # noqa: S105  (a name)


@dataclass(frozen=True, slots=True)
class Detached:
    """The connection without the driver. Reading is paused; `leftover` are bytes that had already arrived.

    Keep this object as long as the transport is used: asyncio's StreamWriter closes its transport when it is collected.
    """

    transport: asyncio.Transport
    leftover: bytes
    writer: asyncio.StreamWriter


class _Connection(Connection):
    """aiomysql's connection with the two refusals that it lacks."""

    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if self._ssl_context and not self.server_capabilities & CLIENT.SSL:
            raise AuthenticationError(
                "TLS is asked for, but the server offers none.",
                hint="Set ssl_cert and ssl_key on the server, or tls=disabled if the network is trusted.",
            )

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        name = plugin_name.decode("ascii", "replace")
        # A man in the middle may ask for the password in clear text, and the driver would send it.
        if name == CLEAR_PASSWORD_PLUGIN and not self._secure:
            raise AuthenticationError(
                f"the server asks for authentication plugin {name}, which would send the password unprotected.",
                hint="Use TLS, or give the account mysql_native_password.",
            )
        if name not in (*PLUGINS, CLEAR_PASSWORD_PLUGIN):
            raise AuthenticationError(
                f"the account uses authentication plugin {name}, which is not supported.",
                hint=f"Use an account with {' or '.join(PLUGINS)}.",
            )
        return await super()._process_auth(plugin_name, auth_packet)


class _Cursor(Cursor):
    """Without the driver's habit of asking for warnings after a statement: nothing we send can be half right.

    (The catalog of 11.8 warns about routines of `sys` that a replica's account may not execute.)
    """

    async def _show_warnings(self, conn: Connection) -> None:
        pass


class Login:
    """A logged-in connection. `run()` drives step generators over it; `detach()` ends the driver's part."""

    def __init__(self, connection: _Connection, endpoint: Endpoint) -> None:
        self._connection = connection
        self.endpoint = endpoint

    @property
    def thread_id(self) -> int:
        """The server's id of this connection, as SHOW PROCESSLIST prints it."""
        return int(self._connection.server_thread_id[0])

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Perform each step and give its rows back; an ERR packet is thrown into the generator as a ServerError.

        Raises:
            DisconnectedError: the connection ended or a step took longer than STATEMENT_TIMEOUT_S.
            ServerError: an ERR packet that the generator did not handle.

        """
        try:
            step = next(steps)
            while True:
                try:
                    rows = await self._perform(step)
                except ServerError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(rows)
        except StopIteration as done:
            return done.value

    async def _perform(self, step: Step) -> Rows:
        async with self._translating():
            if isinstance(step, Query):
                return await self._query(step)
            await self._send(step.payload, replies=step.replies)
            return ()

    @contextlib.asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        """A limit in time, and our errors for the driver's."""
        if self._connection.closed:
            raise DisconnectedError(f"the connection to {self.endpoint} is closed.")
        try:
            async with asyncio.timeout(STATEMENT_TIMEOUT_S):
                yield
        except TimeoutError:
            self.close()
            raise DisconnectedError(f"{self.endpoint} gave no answer within {STATEMENT_TIMEOUT_S:.0f} s.") from None
        except (pymysql.err.MySQLError, OSError) as error:
            raise _translated(error, self.endpoint) from None

    async def _query(self, step: Query) -> Rows:
        async with self._connection.cursor(_Cursor) as cursor:
            # No arguments is not the same as an empty tuple: with a tuple, % in the text is a placeholder.
            await cursor.execute(step.sql, step.arguments or None)
            return list(await cursor.fetchall())

    async def _send(self, payload: bytes, *, replies: bool) -> None:
        connection = self._connection
        if not replies:
            # What comes back is the stream: it belongs to whoever takes the transport.
            connection._writer.transport.pause_reading()  # noqa: SLF001
        connection._next_seq_id = 0  # noqa: SLF001  (every command starts a new sequence)
        connection.write_packet(payload)
        await connection._writer.drain()  # noqa: SLF001
        if replies:
            await self._receive()

    async def _receive(self) -> Any:
        return await self._connection._read_packet()  # noqa: SLF001

    async def dump(self, command: bytes) -> AsyncGenerator[bytes]:
        """Send a dump command and yield its events until the server says EOF; for a few events, through the driver.

        Raises:
            DisconnectedError: the connection ended, or nothing came for STATEMENT_TIMEOUT_S.
            ServerError: an ERR packet.

        """
        async with self._translating():
            await self._send(command, replies=False)
            self._connection._writer.transport.resume_reading()  # noqa: SLF001
        while True:
            async with self._translating():
                packet = await self._receive()
            if packet.is_eof_packet():
                return
            yield packet.get_all_data()[1:]  # behind the status byte

    def detach(self) -> Detached:
        """Take the socket from the driver. Afterwards this login is as good as closed."""
        connection = self._connection
        reader, writer = connection._reader, connection._writer  # noqa: SLF001
        if writer is None:
            raise DisconnectedError(f"the connection to {self.endpoint} was lost before the stream began.")
        connection._reader = connection._writer = None  # noqa: SLF001  (its __del__ closes what it still holds)
        writer.transport.pause_reading()
        # StreamReader offers no way to ask for what it holds without waiting for more.
        return Detached(writer.transport, bytes(reader._buffer), writer)  # noqa: SLF001

    def close(self) -> None:
        self._connection.close()


async def log_in(config: ReplicaConfig, endpoint: Endpoint) -> Login:
    """Connect and authenticate; the connection has autocommit, utf8mb4, TCP_NODELAY and keep-alive.

    Raises:
        AuthenticationError: the account, the password, the plugin or the TLS set-up is refused, by either side.
        DisconnectedError: the server cannot be reached, or not within `connect_timeout_s`.
        ConfigError: the password file or a TLS file cannot be read.

    """
    connection = _Connection(
        host=endpoint.host or "localhost",
        port=endpoint.port or 3306,
        unix_socket=endpoint.unix_socket or None,
        user=config.user,
        # The driver encodes passwords as latin1, the server hashes the bytes a client sent: UTF-8 everywhere else.
        password=config.read_password().encode().decode("latin1"),
        charset="utf8mb4",
        ssl=tls_context(config),
        program_name="mariadb-replica",
        autocommit=True,
        conv={},
    )
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            await connection._connect()  # noqa: SLF001  (aiomysql.connect() would build its own class)
    except TimeoutError:
        connection.close()
        message = f"{endpoint} did not complete the login within {config.connect_timeout_s:g} s."
        raise DisconnectedError(message) from None
    except ReplicaError:
        raise
    except (pymysql.err.MySQLError, OSError, EOFError) as error:
        raise _translated(error, endpoint) from None
    return Login(connection, endpoint)


def _translated(error: BaseException, endpoint: Endpoint) -> ReplicaError:
    """The driver raises OperationalError(code, text) for everything; ours say whether to try again makes sense."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _tls_refused(cause, endpoint)
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]) if error.args else str(error)
    sqlstate = getattr(error, "sqlstate", None) or ""
    lost = code in CONNECTION_CODES or isinstance(error, pymysql.err.InterfaceError) or isinstance(cause, OSError)
    if lost or not isinstance(error, pymysql.err.MySQLError):
        shown = text if cause is error else f"{text}: {cause}"
        return DisconnectedError(f"no connection to {endpoint}: {shown}.")
    if code in AUTHENTICATION_CODES:
        return AuthenticationError(f"{endpoint} refused: {text}.", code=code, sqlstate=sqlstate, hint=_advice(code))
    return ServerError(f"{endpoint} answered with error {code}: {text}.", code=code, sqlstate=sqlstate)


def _advice(code: int) -> str:
    match code:
        case 1045:
            return "Check user, password, and whether the account is allowed from this host or requires TLS."
        case 1698:
            return "This account logs in through the server's unix socket only: use another account, or unix_socket."
        case 1524 | 1251:
            return f"Use an account with {' or '.join(PLUGINS)}."
        case 1130:
            return "Create the account for this host: CREATE USER 'name'@'%'."
        case _:
            return ""


def _tls_refused(error: ssl.SSLError, endpoint: Endpoint) -> AuthenticationError:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "Give the authority that signed it as tls_ca, or connect to the name it was made for."
        message = f"the certificate of {endpoint} is not trusted: {error.verify_message}."
        return AuthenticationError(message, hint=hint)
    return AuthenticationError(
        f"TLS with {endpoint} failed: {error}.", hint="Check tls_cert, and the server's TLS versions."
    )
