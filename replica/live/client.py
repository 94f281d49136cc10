"""Client that keeps a relay log up to date with a primary: it connects, streams, and reconnects.

In: a configuration and an open `RelayWriter`. Out: the relay log, the counters, and the error that ended `run()`. A
lost connection is retried with exponential back-off and jitter over the configured hosts, always from the last complete
group in the relay log. A host that refuses permanently is skipped while another host may accept. On a full disk, the
client waits. Every other error is permanent and ends `run()`. The removal of relay files also ends `run()`, even
without a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NoReturn

import tenacity

from replica.errors import (
    AuthenticationError,
    ChecksumError,
    ConfigError,
    DisconnectedError,
    DiskFullError,
    DuplicateServerIdError,
    OutOfOrderGtidError,
    PrerequisiteError,
    ProtocolError,
    RelayError,
    ReplicaError,
)
from replica.live.backpressure import Backpressure, FullDisk
from replica.live.connect import Connector, Dump, Hosts
from replica.live.progress import Progress
from replica.live.session import Agreed, Session, StaleStreamCheck
from replica.relay_log.directory.lock import WATCH_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from structlog.typing import FilteringBoundLogger

    from replica.handshake.start.resume import Stored
    from replica.live.progress import PauseReason
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.directory.identity import Owner
    from replica.relay_writer.writer import RelayWriter

PARTING_S = 1.0
"""Seconds for the goodbye after relay files were removed. The replica then ends within two seconds, even if a server
hangs.
"""
STEADY_S = 5.0
"""Seconds after which a connection counts as useful, even if nothing happened on the server.

The time limit of retries then starts again.
"""

_LIKE_DAMAGE = (AuthenticationError, PrerequisiteError, ProtocolError)
"""Errors that damaged bytes may cause during a login. If a server accepted an earlier login, the first such error is
retried, because damage on the network does not recur.
"""


class Replica:
    """Connection of one relay log to its primary. Run `run()` in one task, and cancel that task to stop.

    Args:
        config: where to connect, and how long to retry.
        relay: the open writer, at its last complete group or at the position to start after.
        log: receives events with key-value pairs, never a secret.
        start: where an empty log starts, with its place in the primary's binlog if an earlier run stored it. None for
            `config.start`.
        on_progress: called in the loop's thread after every chunk that completed a group.
        progress: state and counters, kept up to date. Any thread may read them.
        owner: the program that runs this replica, for users who find the relay directory.
        wait_for_readers: False if old relay files are removed whether they were read or not. Then only a nearly full
            disk pauses receiving, never the size of the log.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        relay: RelayWriter,
        *,
        log: FilteringBoundLogger,
        start: Stored | None = None,
        on_progress: Callable[[], None] | None = None,
        progress: Progress | None = None,
        owner: Owner = "embedded",
        wait_for_readers: bool = True,
    ) -> None:
        self.progress = progress or Progress()
        self._config = config
        self._relay = relay
        self._log = log
        self._on_progress = on_progress
        self._wait_for_readers = wait_for_readers
        self._hosts = Hosts(config.endpoints)
        self._session: Session | None = None
        self._connector = Connector(config, relay, log=log, start=start, owner=owner)
        self._full_disk = FullDisk(relay, min_free_bytes=config.min_free_bytes, progress=self.progress, log=log)
        self._quiet = StaleStreamCheck(lambda: relay.position, self.progress, log=log)
        self._damage_at: GtidPosition | None = None
        self._doubted: set[Endpoint] = set()
        self._streaming_since_s = 0.0
        self._parting = False

    @property
    def endpoint(self) -> Endpoint:
        """The server in use, or the next one to try."""
        return self._hosts.current

    def reload(self, config: ReplicaConfig) -> None:
        """Apply changed hosts and another limit of the relay log from a configuration that is otherwise equal.

        Call it in the loop's thread. A connection stays if its server is still among the hosts, else it ends with a
        goodbye.
        """
        self._config = config
        self._connector.reload(config)
        if self._session is not None:
            self._session.backpressure.set_limit(self._max_relay_bytes)
            self._disconnect_if_removed(self._session)

    def _disconnect_if_removed(self, session: Session) -> None:
        if self._host_removed:
            session.disconnect(f"{self.endpoint} is no longer one of the hosts: the options were reloaded.")

    @property
    def _host_removed(self) -> bool:
        """Whether the server in use is no longer among the hosts."""
        return self.endpoint not in self._config.endpoints

    @property
    def _max_relay_bytes(self) -> int | None:
        return self._config.relay_max_bytes if self._wait_for_readers else None

    async def run(self) -> None:
        """Stream until cancelled or until a permanent error; always raises.

        After a cancellation, all received groups are on disk and the primary has ended our dump before `run` returns.

        Raises:
            DisconnectedError: no server could be reached for `connect_retry_s` (`reconnect_retry_s` once connected).
            DuplicateServerIdError: another replica has our server id.
            ReplicaError: any other error of the login, the checks or the stream; with several hosts, of all of them.
        """
        progress = self.progress
        progress.started_at = time.time()
        try:
            await self._while_files_exist(self._stream_forever())
        except asyncio.CancelledError:
            progress.state = "stopped"
            raise
        except Exception as error:
            self._note(error)
            progress.state = "failed"
            raise

    async def _stream_forever(self) -> NoReturn:
        while True:
            await self._until_of_use()

    async def _while_files_exist(self, work: Coroutine[None, None, NoReturn]) -> None:
        """Run `work`, connected or not, until it ends or the relay log's files are removed.

        Raises:
            RelayError: the files were removed. The work was cancelled first and has said goodbye, if the primary
                answers.
        """
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=WATCH_EVERY_S))[0]:
                if not self._parting:  # the work ends by itself, and must be able to say goodbye
                    self._relay.check_files()
        except BaseException as ending:
            if not task.cancelling():  # all tasks of the loop may be cancelled: a second time would cut the goodbye
                task.cancel()
            if isinstance(ending, RelayError):
                await asyncio.wait({task}, timeout=PARTING_S)
                task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            if task.done() and not task.cancelled():
                task.exception()  # marks the exception as retrieved
        await task

    async def _until_of_use(self) -> None:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(DisconnectedError),
            wait=tenacity.wait_random_exponential(self._config.backoff_initial_s, self._config.backoff_max_s),
            stop=self._out_of_patience,
            before_sleep=self._log_retry,
            reraise=True,
        )
        try:
            # Returns after a connection that received something. The next one then starts without a wait.
            await retrying(self._attempt)
        except DisconnectedError as error:
            hint = f"Gave up after {self._patience_s:g} s: see connect_retry_s and reconnect_retry_s. {error.hint}"
            message = error.message
            if self._hosts.refusals:
                last = "" if isinstance(error.__cause__, ReplicaError) else f"{error.message} "
                message = f"{last}No other server can be used. {self._hosts.refusals}"
            raise DisconnectedError(message, hint=hint.rstrip()) from error

    @property
    def _patience_s(self) -> float:
        # Evaluated after every attempt: the first one that connects proves that the configuration is right.
        return self._config.reconnect_retry_s if self.progress.connections else self._config.connect_retry_s

    def _out_of_patience(self, state: tenacity.RetryCallState) -> bool:
        # One silent host may take all the time, but every other host is tried too.
        all_tried = state.attempt_number >= len(self._config.endpoints)
        return all_tried and (state.seconds_since_start or 0) >= self._patience_s

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        wait_s = state.next_action.sleep if state.next_action else 0.0
        error = state.outcome.exception() if state.outcome else None
        self._log.info(
            "reconnecting",
            endpoint=str(self.endpoint),
            attempt=state.attempt_number,
            wait_s=round(wait_s, 3),
            reason=error.message if isinstance(error, ReplicaError) else repr(error),
        )

    def _note(self, error: BaseException) -> None:
        self.progress.last_error = error.message if isinstance(error, ReplicaError) else repr(error)
        self.progress.last_error_at = time.time()

    # -- one attempt ---------------------------------------------------------------------------------------------

    async def _attempt(self) -> None:
        """Make one connection, from login to its end.

        Return if the connection received something, else raise the error that ended the connection.
        """
        progress = self.progress
        before, connections = self._relay.committed, progress.connections
        self._session = None
        self._hosts.replace(self._config.endpoints)  # a reload of the options may have changed them
        progress.state = "connecting"
        try:
            progress.endpoint, progress.server_id = str(self.endpoint), self._connector.server_id
            dump = await self._connector.connect(self.endpoint)
            await self._stream(dump)
        except DiskFullError as error:
            self._note(error)
            await self._full_disk.wait(error, repeated=self._relay.committed == before)
        except (ConfigError, RelayError, OutOfOrderGtidError, DuplicateServerIdError):
            raise  # another host cannot solve the first three; a retry of the last would disconnect the other replica
        except ReplicaError as error:
            self._note(error)
            connected = progress.connections > connections
            steady = connected and time.monotonic() - self._streaming_since_s >= STEADY_S
            of_use = steady or self._relay.committed != before
            if connected:
                progress.disconnects += 1
            else:
                progress.failed_attempts += 1
            if of_use:
                self._hosts.served()
            if self._may_repeat(error, connected=connected):
                event = "disconnected" if connected else "not connected"
                self._log.warning(event, endpoint=str(self.endpoint), error=error.message)
                if of_use:
                    return
            else:
                self._refused(error)
            self._hosts.advance()
            if isinstance(error, DisconnectedError):
                raise
            raise DisconnectedError(error.message, hint=error.hint) from error

    def _may_repeat(self, error: ReplicaError, *, connected: bool) -> bool:
        """Return True if a retry with the same server may succeed at once."""
        if isinstance(error, ChecksumError):
            # Damage on the network does not recur at the second read, but damage in the primary's file does.
            self.progress.checksum_errors += 1
            repeated, self._damage_at = self._damage_at == self._relay.position, self._relay.position
            return not repeated
        doubtful = isinstance(error, _LIKE_DAMAGE) and not connected and self.progress.connections
        if doubtful and self.endpoint not in self._doubted:
            self._doubted.add(self.endpoint)
            return True
        return isinstance(error, DisconnectedError)

    def _refused(self, error: ReplicaError) -> None:
        hosts = self._hosts
        news = hosts.refused(error)
        verdict = hosts.verdict
        if verdict is not None:
            raise verdict from error
        if news:
            self._log.error("refused", endpoint=str(hosts.current), error=error.message, hint=error.hint)

    async def _stream(self, dump: Dump) -> None:
        config, progress = self._config, self.progress
        self._streaming_since_s = time.monotonic()
        self._doubted.clear()
        progress.connections += 1
        progress.connected_at = time.time()
        progress.thread_id = dump.thread.thread_id
        progress.primary_version, progress.primary_server_id = dump.server.version, dump.server.server_id
        progress.semi_sync = dump.registered.semi_sync
        progress.tls, progress.compressed = dump.detached.tls, dump.detached.compressed
        self._log.info(
            "connected",
            endpoint=str(dump.endpoint),
            version=dump.server.version,
            primary_server_id=dump.server.server_id,
            thread_id=dump.thread.thread_id,
            server_id=self._connector.server_id,
            position=str(dump.position),
        )
        session = Session(
            self._relay,
            Agreed(
                semi_sync=dump.registered.semi_sync,
                heartbeat_s=config.heartbeat_s,
                strict=config.gtid_strict_mode,
                sync_before_ack=config.ack_policy == "fsync",
            ),
            backpressure=Backpressure(
                self._relay,
                max_relay_bytes=self._max_relay_bytes,
                min_free_bytes=config.min_free_bytes,
            ),
            progress=progress,
            on_progress=self._on_progress,
            on_pause=self._log_pause,
        )
        self._session = session
        # The options may have been reloaded while it connected.
        asyncio.get_running_loop().call_soon(self._disconnect_if_removed, session)
        quiet = asyncio.create_task(self._quiet.run(config, self.endpoint, session.disconnect))
        try:
            await session.run(dump.detached.transport, dump.detached.leftover)
        except (asyncio.CancelledError, RelayError, ProtocolError, OutOfOrderGtidError, DisconnectedError) as ending:
            if isinstance(ending, DisconnectedError) and not self._host_removed:
                raise
            try:
                if isinstance(ending, asyncio.CancelledError):
                    progress.state = "stopping"
                    # Acknowledged groups are on disk already, and a disk that fills up must not prevent the stop.
                    with contextlib.suppress(DiskFullError):
                        self._relay.sync()
            finally:
                self._parting = True
                try:
                    await self._connector.say_goodbye(dump)
                finally:
                    self._parting = False
            raise
        finally:
            quiet.cancel()

    def _log_pause(self, reason: PauseReason) -> None:
        relay = self._relay
        if not reason:
            self._log.info("receiving goes on", position=str(relay.position))
            return
        self._log.warning(
            "receiving paused",
            reason=reason,
            relay_dir=str(relay.directory),
            relay_bytes=relay.total_bytes(),
            free_bytes=relay.free_bytes(),
            hint="Receiving continues by itself once there is space. Commits of a semi-synchronous primary wait for "
            "us meanwhile, until another replica acknowledges them or rpl_semi_sync_master_timeout ends that.",
        )
