"""Blocking connection that reads tables: statements, snapshots, and SELECT results as raw packets.

`TableConnection.open` logs in as the replica does, so all plugins, TLS modes and compression work. Then it takes the
connection from its driver. Small queries return rows of text. `select` returns packets in the binary protocol, and no
row passes through Python.

The connection refuses a session that does not keep its settings (session.py) and malformed answers. It also refuses the
next command after a result that was not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import tenacity

from replica.errors import DisconnectedError, ProtocolError, ReplicaError, ServerError
from replica.handshake.login.connection import PACKET_COST
from replica.handshake.login.driver import error_of
from replica.handshake.login.login import Detached, attempt, log_in, said_by
from replica.handshake.login.refusals import translated
from replica.handshake.registration import MAX_REPLY_BYTES, Query, Rows, Step, Steps
from replica.protocol.constants import Command
from replica.protocol.packets.packets import com_query
from replica.protocol.packets.results import (
    ErrorReply,
    com_stmt_close,
    com_stmt_execute,
    com_stmt_prepare,
    prepare_reply,
    read_reply,
    result_columns,
    row_end,
)
from replica.snapshot.connection.packets import PacketReceiver, ReceivedBytes, ResultStream, RowStretch
from replica.snapshot.connection.session import (
    LOCK_WAIT_S,
    STATEMENT_S,
    SessionLimits,
    ask_position,
    begin,
    settle,
    text_literal,
)
from replica.snapshot.connection.transports import SocketBytes, TransportBytes, end_loop
from replica.snapshot.errors import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition

_Result = TypeVar("_Result")

MAX_COLUMNS_BYTES: Final = 16 << 20
"""Maximum bytes of a result's column definitions: 4096 columns, each with five names of up to 256 bytes."""
SILENCE_S: Final = 30.0
"""Time in seconds, on top of the statement limit, to wait for the server's next byte."""


class TableConnection:
    """Connection that reads tables, created by `open`.

    One thread at a time calls the methods, which block. Any thread may call `close`.
    """

    def __init__(self, endpoint: Endpoint, receiver: PacketReceiver, *, isolation: str) -> None:
        self.endpoint = endpoint
        self._receiver = receiver
        self._isolation = isolation
        self._lock = threading.Lock()
        self._closed = False
        self._reading: int | None = None

    @classmethod
    def open(
        cls,
        config: ReplicaConfig,
        endpoint: Endpoint | None = None,
        *,
        statement_s: float = STATEMENT_S,
        lock_wait_s: float = LOCK_WAIT_S,
        silence_s: float = SILENCE_S,
    ) -> TableConnection:
        """Log in and apply the session settings.

        Args:
            config: Account, TLS, compression and time limits.
            endpoint: Server, tried once; None tries the configured servers in turn for `connect_retry_s`.
            statement_s: Maximum run time of a statement on the server, in seconds.
            lock_wait_s: Maximum wait for a lock on the server, in seconds.
            silence_s: Time in seconds, on top of `statement_s`, to wait for the server's next byte.

        Raises:
            AuthenticationError: Either side refuses the account, the password, the plugin or the TLS setup.
            DisconnectedError: The server is not reachable.
            PrerequisiteError: The server writes no binlog, or the session does not keep its settings.
            ReplicaError: Any other login error.
        """
        limits = SessionLimits(statement_s, lock_wait_s)

        async def once(server: Endpoint) -> tuple[Endpoint, Detached, str]:
            login = await log_in(config, server)
            with contextlib.closing(login):
                isolation = await login.run(settle(limits))
                return server, login.detach(), isolation

        loop = asyncio.new_event_loop()
        with contextlib.ExitStack() as unless_needed:
            unless_needed.callback(end_loop, loop)
            logging_in = attempt(config, once) if endpoint is None else once(endpoint)
            server, detached, isolation = loop.run_until_complete(logging_in)
            source: ReceivedBytes
            if detached.tls or detached.compressed:
                source = TransportBytes(loop, detached, statement_s + silence_s)
                unless_needed.pop_all()
            else:
                source = SocketBytes(detached, statement_s + silence_s)
        return cls(server, PacketReceiver(source, detached.leftover), isolation=isolation)

    # -- queries -----------------------------------------------------------------------------------------------------

    def rows(self, sql: str, arguments: tuple[str, ...] = ()) -> Rows:
        """Run a statement and return its rows as text, for small answers in UTF-8 and not for table data.

        Args:
            sql: SQL text. With arguments, %s is a placeholder and %% is a percent sign.
            arguments: Texts that are quoted into the placeholders.

        Raises:
            ServerError: The server refused the statement.
            DisconnectedError: The connection ended, or another thread closed it.
            ProtocolError: The answer is malformed, or longer than MAX_REPLY_BYTES.
        """
        return self._perform(Query(sql, arguments))

    def run(self, steps: Steps[_Result]) -> _Result:
        """Run the steps and return their result; an ERR packet is thrown into the steps as a ServerError."""
        try:
            step = next(steps)
            while True:
                try:
                    rows = self._perform(step)
                except ServerError as error:
                    step = steps.throw(error)
                else:
                    step = self._send(steps, rows)
        except StopIteration as done:
            return done.value

    def _send(self, steps: Steps[_Result], rows: Rows) -> Step:
        try:
            return steps.send(rows)
        except (TypeError, ValueError, IndexError, KeyError) as error:
            # Steps assume the shape of their statement's answer, and a peer that is no MariaDB server may send
            # anything.
            raise ProtocolError(f"{self.endpoint} sent an answer that cannot be parsed: {error!r}.") from error

    def _perform(self, step: Step) -> Rows:
        if isinstance(step, Query):
            arguments = tuple(text_literal(argument) for argument in step.arguments)
            payload, most = com_query(step.sql % arguments if arguments else step.sql), step.most_bytes
        else:
            payload, most = step.payload, MAX_REPLY_BYTES
        with self._using() as receiver:
            receiver.send(payload)
            return self._answer(read_reply(), most).rows

    # -- snapshots and tables ----------------------------------------------------------------------------------------

    def position(self) -> GtidPosition:
        """Return @@global.gtid_binlog_pos."""
        return self.run(ask_position())

    def begin_snapshot(self) -> GtidPosition:
        """Open a snapshot and return a position that covers everything the snapshot sees.

        Raises:
            PrerequisiteError: The session has lost its isolation level.
            ServerError: The server refused the statement.
            DisconnectedError: The connection ended, or another thread closed it.
        """
        return self.run(begin(self._isolation))

    def end_snapshot(self) -> None:
        """Release the snapshot and the metadata locks of its tables."""
        self.rows("COMMIT")

    def select(self, sql: str) -> ResultStream:
        """Run a SELECT and return its result as a stream in the binary protocol.

        Args:
            sql: SQL text with all values as literals.

        Raises:
            ServerError: The server refused the statement.
            DisconnectedError: The connection ended, or another thread closed it.
            ProtocolError: The answer is malformed.
        """
        with self._using() as receiver:
            receiver.send(com_stmt_prepare(sql))
            statement = self._answer(prepare_reply(), MAX_COLUMNS_BYTES).statement
            try:
                receiver.send(com_stmt_execute(statement))
                columns = self._answer(result_columns(), MAX_COLUMNS_BYTES)
            except ErrorReply:
                receiver.send(com_stmt_close(statement))
                raise
            self._reading = statement
        return ResultStream(columns, lambda: self._take(statement))

    def _take(self, statement: int) -> RowStretch | None:
        if self._reading != statement:
            return None  # the result has ended
        with self._using(statement) as receiver:
            stretch = receiver.rows()
            if stretch is None:
                last = receiver.payload(MAX_REPLY_BYTES)
                self._reading = None
                receiver.send(com_stmt_close(statement))
                row_end(last)
            return stretch

    def _answer(self, reading: Generator[None, bytes, _Result], most: int) -> _Result:
        next(reading)
        left = most
        try:
            while True:
                payload = self._receiver.payload(most)
                left -= len(payload) + PACKET_COST
                if left < 0:
                    raise ProtocolError(f"a reply of more than {most} bytes")
                reading.send(payload)
        except StopIteration as done:
            return done.value

    # -- close -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection from any thread; a thread that waits in a method gets a DisconnectedError."""
        idle = self._lock.acquire(blocking=False)
        if not idle:
            with contextlib.suppress(RuntimeError):  # the thread that held the lock has closed the loop
                self._receiver.source.interrupt(self._closed_error())
            self._lock.acquire()
        try:
            if not self._closed:
                self._closed = True
                if idle and self._reading is None:
                    with contextlib.suppress(ReplicaError):  # the connection has already ended
                        self._receiver.send(bytes((Command.QUIT,)))
                self._receiver.source.end(self._closed_error())
                self._receiver.source.close()
        finally:
            self._lock.release()

    def _closed_error(self) -> DisconnectedError:
        return DisconnectedError(f"the connection to {self.endpoint} was closed.")

    @contextlib.contextmanager
    def _using(self, statement: int | None = None) -> Iterator[PacketReceiver]:
        """Lock the connection for one thread, and add the server's name to errors."""
        with self._lock:
            if self._closed:
                raise self._closed_error()
            receiver = self._receiver
            if self._reading != statement:
                receiver.source.end(DisconnectedError(f"a result of {self.endpoint} was left before its end."))
            try:
                yield receiver
            except ErrorReply as error:
                raise translated(error_of(error.packet), self.endpoint) from None
            except ProtocolError as error:
                failed = said_by(self.endpoint, error)
                receiver.source.end(failed)
                raise failed from None
            except BaseException as error:
                receiver.source.end(error if isinstance(error, DisconnectedError) else self._closed_error())
                raise


POLL_S: Final = 0.2
"""Wait between two attempts in seconds. A server that restarts refuses connections at once."""

Answer = TypeVar("Answer")
Connection = TypeVar("Connection", bound="SnapshotConnection")


class QueryConnection(Protocol):
    """Connection that answers small queries."""

    def rows(self, sql: str, arguments: tuple[str, ...] = ()) -> Rows: ...

    def run(self, steps: Steps[_Result]) -> _Result: ...


class SnapshotConnection(QueryConnection, Protocol):
    """Connection with the methods that reading a chunk needs."""

    def begin_snapshot(self) -> GtidPosition: ...

    def position(self) -> GtidPosition: ...

    def select(self, sql: str) -> ResultStream: ...

    def end_snapshot(self) -> None: ...

    def close(self) -> None: ...


def ask_with_retries(
    connect: Callable[[], Connection], question: Callable[[Connection], Answer], patience_s: float
) -> Answer:
    """Return the answer to a question over a new connection.

    Args:
        connect: Opens a connection.
        question: Gets the connection and returns the answer.
        patience_s: Time in seconds after which no further attempt is made.

    Raises:
        DisconnectedError: No server was reachable for `patience_s`.
        ReplicaError: Any other error of `connect` or `question`.
    """

    def once() -> Answer:
        with closing(connect()) as connection:
            return question(connection)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        wait=tenacity.wait_fixed(POLL_S),
        stop=tenacity.stop_after_delay(patience_s),
        reraise=True,
    )
    return retrying(once)
