"""Blocking connection that reads tables: statements, snapshots, and SELECT results as raw packets.

`TableConnection.open` logs in as the replica does, so all plugins, TLS modes and compression work. Then it takes the
connection from its driver. Small queries return rows of text. `select` returns packets in the binary protocol, and no
row passes through Python.

The login applies the settings of all sessions (`handshake/login/session_settings.py`). `settle` adds the settings that
make row bytes equal those of the binlog: text in the column's own character set, time limits, and REPEATABLE READ. At
another isolation level the server drops the snapshot, on 10.11 and later without an error. A server without a binlog is
refused, and so is a session that does not keep its settings.

The connection also refuses malformed answers, and the next command after a result that was not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import tenacity

from replica.errors import ConfigError, DisconnectedError, PrerequisiteError, ProtocolError, ReplicaError, ServerError
from replica.handshake.login.connection import PACKET_COST
from replica.handshake.login.driver import error_of
from replica.handshake.login.login import Detached, attempt, log_in, said_by
from replica.handshake.login.refusals import translated
from replica.handshake.login.session_settings import (
    SETTINGS,
    SessionSetting,
    differences,
    not_kept,
    set_session,
    show_session,
    variables_of,
)
from replica.handshake.registration import MAX_REPLY_BYTES, Query, Rows, Step, Steps
from replica.protocol.constants import Command
from replica.protocol.gtid import GtidPosition
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
from replica.snapshot.connection.packets import (
    PacketReceiver,
    ReceivedBytes,
    ResultStream,
    RowStretch,
    SocketBytes,
    TransportBytes,
    end_loop,
)
from replica.snapshot.errors import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from replica.options.config import Endpoint, ReplicaConfig

STATEMENT_S: Final = 300.0
"""Default limit of a statement's run time in seconds. A chunk takes about one second. A SELECT that takes minutes does
not read in index order.
"""
LOCK_WAIT_S: Final = 10.0
"""Maximum wait for DDL in seconds. Other statements on the table queue while this session waits."""
NET_WRITE_S: Final = 60
"""Time in seconds for which the server holds a snapshot for a reader that does not receive; the server's own
default.
"""
IDLE_SNAPSHOT_S: Final = 60
"""Time in seconds after which the server closes an idle snapshot. Its reader hangs, and DDL waits for the snapshot."""
IDLE_S: Final = 28_800
"""Maximum idle time between two chunks in seconds: the server's own default, which many servers lower."""

_ISOLATION: Final = ("tx_isolation", "transaction_isolation")  # 11.1 has both variables
_LEVEL: Final = "REPEATABLE-READ"
_BINLOG: Final = "log_bin"
_STORED: Final = SessionSetting("character_set_results", "NULL", "", "text comes in the column's own character set")
_WANTED: Final = {
    **{one.name: one.shown for one in SETTINGS if one.shown is not None and one.name != "max_statement_time"},
    _STORED.name: _STORED.shown or "",
}
"""Variable -> value that SHOW prints in a session after `settle`."""


class SessionLimits(NamedTuple):
    """Maximum run time and lock wait of a statement on the server, in seconds."""

    statement_s: float = STATEMENT_S
    lock_wait_s: float = LOCK_WAIT_S


def settle(limits: SessionLimits) -> Steps[str]:
    """Apply the session settings and read them back; return the name of the isolation level variable.

    Raises:
        PrerequisiteError: The session does not keep its settings, or the server writes no binlog.
    """
    yield Query("ROLLBACK")  # a transaction opened by init_connect would keep its snapshot and isolation level
    yield Query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    yield Query(set_session((_STORED, *_limits(limits))))
    rows = yield Query(show_session((*_WANTED, *_ISOLATION, _BINLOG)))
    return _judged(rows)


def _limits(limits: SessionLimits) -> tuple[SessionSetting, ...]:
    wait_s = str(max(round(limits.lock_wait_s), 1))
    idle, wait = "a snapshot that its reader forgot holds up DDL", "DDL must not wait for a reader that waits"
    return (
        SessionSetting("max_statement_time", f"{limits.statement_s:g}", None, "a chunk in the wrong order reads all"),
        SessionSetting("lock_wait_timeout", wait_s, None, wait),
        SessionSetting("innodb_lock_wait_timeout", wait_s, None, wait),
        SessionSetting("net_write_timeout", str(NET_WRITE_S), None, "a snapshot is held while it cannot write"),
        SessionSetting("wait_timeout", str(IDLE_S), None, "a session stands idle between two chunks"),
        SessionSetting("idle_transaction_timeout", str(IDLE_SNAPSHOT_S), None, idle),
        SessionSetting("idle_readonly_transaction_timeout", str(IDLE_SNAPSHOT_S), None, idle),
    )


def _judged(rows: Rows) -> str:
    found = variables_of(rows)
    if found.get(_BINLOG, "").upper() != "ON":
        raise PrerequisiteError(
            "the server writes no binlog (log_bin is off), so its tables have no position in a stream.",
            hint="Set log_bin under [mariadb] in the server's configuration file and restart the server.",
        )
    levels = {name: found[name] for name in _ISOLATION if name in found}
    wrong = differences(found, _WANTED)
    wrong += [f"{name} is {level!r}" for name, level in levels.items() if level != _LEVEL]
    if wrong or not levels:
        raise not_kept(", ".join(wrong) or "it has no isolation level")
    return next(iter(levels))


def begin(isolation: str) -> Steps[GtidPosition]:
    """Open the snapshot and return a position that covers everything the snapshot sees.

    A commit enters the binlog before it becomes visible. Therefore, a position that is read after the snapshot opens
    covers all visible commits (measured on 10.5, 10.11 and 11.8).

    Args:
        isolation: Name of the isolation level variable.

    Raises:
        PrerequisiteError: The session has another isolation level, so the server has opened no snapshot.
    """
    yield Query("START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT")
    ((level, text),) = yield Query(f"SELECT @@session.{isolation}, @@global.gtid_binlog_pos")
    if level != _LEVEL:
        raise not_kept(f"{isolation} is {level!r}")
    return position_of(text)


def ask_position() -> Steps[GtidPosition]:
    """Ask for the position of the binlog's end."""
    ((text,),) = yield Query("SELECT @@global.gtid_binlog_pos")
    return position_of(text)


def position_of(text: str | None) -> GtidPosition:
    """Parse a GTID position from the server."""
    try:
        return GtidPosition.parse(text or "")
    except ConfigError as error:
        raise ProtocolError(f"the server's GTID position is invalid: {error.message}") from None


def text_literal(text: str) -> str:
    """Quote a text for a statement of this session, whose sql_mode keeps backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


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
