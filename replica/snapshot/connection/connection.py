"""A connection that reads tables, for one thread that waits: statements, snapshots, and results as raw packets.

In: a configuration and a server. Out: rows of text for small questions, and the packets of a SELECT's result. The login
is that of the replica, so all plugins, TLS modes and compression work; then the connection is taken from its driver,
and no row passes through Python.

Refused: a session that does not keep its settings (session.py), answers that are none, and the next command after a
result that was not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from replica.errors import DisconnectedError, ProtocolError, ReplicaError, ServerError
from replica.handshake.ask import attempt
from replica.handshake.login.connection import PACKET_COST
from replica.handshake.login.driver import error_of
from replica.handshake.login.login import Detached, log_in, said_by
from replica.handshake.login.refusals import translated
from replica.handshake.registration import MAX_REPLY_BYTES, Query, Rows, Step, Steps
from replica.protocol.constants import Command
from replica.protocol.packets.commands import com_query
from replica.protocol.packets.prepared import (
    com_stmt_close,
    com_stmt_execute,
    com_stmt_prepare,
    prepare_reply,
    result_columns,
    row_end,
)
from replica.protocol.packets.result_set import ErrorReply, read_reply
from replica.snapshot.connection.packets import PacketReceiver, ReceivedBytes
from replica.snapshot.connection.result_stream import ResultStream, RowStretch
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

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition

_Result = TypeVar("_Result")

MAX_COLUMNS_BYTES: Final = 16 << 20
"""The bytes of the columns of a result: 4096 of them, each with five names of up to 256 bytes."""
SILENCE_S: Final = 30.0
"""How much longer than a statement may run on the server we wait for its next byte."""


class TableConnection:
    """One connection. Its methods are for one thread at a time, which waits in them; `close` is for any thread.

    Made by `open`.
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
        """Log in, and settle the session.

        Args:
            config: account, TLS, compression and time limits.
            endpoint: the server, tried once; None: the configured ones in turn, for `connect_retry_s`.
            statement_s: how long a statement may run on the server.
            lock_wait_s: how long it may wait there for a lock.
            silence_s: how much longer we wait for its next byte.

        Raises:
            AuthenticationError: the account, the password, the plugin or the TLS set-up is refused, by either side.
            DisconnectedError: the server cannot be reached.
            PrerequisiteError: the server writes no binlog, or the session does not keep its settings.
            ReplicaError: what else a login may end in.
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

    # -- questions ---------------------------------------------------------------------------------------------------

    def rows(self, sql: str, arguments: tuple[str, ...] = ()) -> Rows:
        """Run a statement, and return its rows as text; for small answers in UTF-8, not for values of tables.

        Args:
            sql: the text; with arguments, %s stands for each, and %% for a percent sign.
            arguments: texts that are quoted.

        Raises:
            ServerError: the server refused it.
            DisconnectedError: the connection ended, or was closed by another thread.
            ProtocolError: the answer is none, or longer than MAX_REPLY_BYTES.
        """
        return self._perform(Query(sql, arguments))

    def run(self, steps: Steps[_Result]) -> _Result:
        """Hold a conversation, and return its result; an ERR packet is thrown into it as a ServerError."""
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
            # They take an answer for what their statement gives: a server that is none gives anything.
            raise ProtocolError(f"{self.endpoint} gave an answer that makes no sense: {error!r}.") from error

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
        """Ask for @@global.gtid_binlog_pos."""
        return self.run(ask_position())

    def begin_snapshot(self) -> GtidPosition:
        """Open a snapshot, and return a position that is not below what it sees.

        Raises:
            PrerequisiteError: the session has lost its isolation level.
            ServerError: the server refused it.
            DisconnectedError: the connection ended, or was closed by another thread.
        """
        return self.run(begin(self._isolation))

    def end_snapshot(self) -> None:
        """Let go of the snapshot and of the tables' metadata locks."""
        self.rows("COMMIT")

    def select(self, sql: str) -> ResultStream:
        """Run a SELECT, and return its result as it comes, in the binary protocol.

        Args:
            sql: the text, with all values in it as literals.

        Raises:
            ServerError: the server refused it.
            DisconnectedError: the connection ended, or was closed by another thread.
            ProtocolError: the answer is none.
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
            return None  # at its end
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

    # -- its end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection, from any thread: one that waits in a method gets a DisconnectedError there."""
        idle = self._lock.acquire(blocking=False)
        if not idle:
            with contextlib.suppress(RuntimeError):  # the thread that had the lock has closed the loop
                self._receiver.source.interrupt(self._gone())
            self._lock.acquire()
        try:
            if not self._closed:
                self._closed = True
                if idle and self._reading is None:
                    with contextlib.suppress(ReplicaError):  # it has ended already
                        self._receiver.send(bytes((Command.QUIT,)))
                self._receiver.source.end(self._gone())
                self._receiver.source.close()
        finally:
            self._lock.release()

    def _gone(self) -> DisconnectedError:
        return DisconnectedError(f"the connection to {self.endpoint} was closed.")

    @contextlib.contextmanager
    def _using(self, statement: int | None = None) -> Iterator[PacketReceiver]:
        """Keep the connection to one thread, and raise our errors with the server's name."""
        with self._lock:
            if self._closed:
                raise self._gone()
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
                receiver.source.end(error if isinstance(error, DisconnectedError) else self._gone())
                raise
