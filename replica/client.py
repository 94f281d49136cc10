"""Keeps a relay log up with a primary for as long as it takes: connect, check, register, stream, and again.

In: a configuration and an open `RelayWriter`. Out: nothing but the relay log and the error that ended it. A lost
connection is tried again with exponential back-off and jitter, the configured hosts in turn, always from the last
complete group in the relay log; every other error is permanent and ends `run()`. Before each start the server is asked
whether its binlog is still the one the log came from (handshake.resume): the server alone would not notice a reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

import tenacity

from replica.errors import ChecksumError, DisconnectedError, ReplicaError
from replica.handshake.login import Detached, Login, log_in
from replica.handshake.peek import MAX_DUMP_POSITION
from replica.handshake.registration import Registered, Registration, end_dump, register
from replica.handshake.resume import Stored, verify, verify_event
from replica.handshake.server import ServerInfo, check, inspect_server, refusal
from replica.handshake.start import starting_position
from replica.protocol.constants import HEADER_LENGTH
from replica.protocol.header import parse_header
from replica.relay.file_head import read_file_head
from replica.relay.location import RelayLocation, relay_path
from replica.relay.log import RelayLog
from replica.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from replica.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.relay.writer import RelayWriter

STEADY_S = 5.0
"""A connection that lived this long did work, even if nothing happened on the server: patience starts anew."""
GOODBYE_TIMEOUT_S = 1.0
"""A stop must not hang on a server that does; it finds out by itself at its next heartbeat."""


class Replica:
    """One relay log's connection to its primary; `run()` it in one task, cancel that to stop.

    Args:
        config: where to connect, and how patiently.
        relay: open, at its last complete group or at the position to start after.
        log: takes events with key-value pairs; never a secret.
        start: where an empty log starts, with its place in the primary's binlog if that is known from an earlier
            life; None for what `config.start` says.
        on_progress: called in the loop's thread after every chunk that completed a group.

    """

    def __init__(
        self,
        config: ReplicaConfig,
        relay: RelayWriter,
        *,
        log: FilteringBoundLogger,
        start: Stored | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self.connections = 0
        self._config = config
        self._relay = relay
        self._log = log
        self._start = start
        self._on_progress = on_progress
        self._turn = 0
        self._warned: set[str] = set()
        self._damage_at: GtidPosition | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The server in use, or the next one to try."""
        endpoints = self._config.endpoints
        return endpoints[self._turn % len(endpoints)]

    async def run(self) -> None:
        """Stream until cancelled or until an error that trying again cannot mend; always raises.

        Raises:
            DisconnectedError: no server could be reached for `connect_retry_s` (`reconnect_retry_s` once connected).
            ReplicaError: any other, from the login, the checks or the stream.

        """
        while True:
            retrying = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(DisconnectedError),
                wait=tenacity.wait_random_exponential(self._config.backoff_initial_s, self._config.backoff_max_s),
                stop=lambda state: (state.seconds_since_start or 0) >= self._patience_s,
                before_sleep=self._log_retry,
                reraise=True,
            )
            try:
                # Returns after a connection that brought something: then the next one starts without a wait.
                await retrying(self._connection)
            except DisconnectedError as error:
                hint = f"Gave up after {self._patience_s:g} s: see connect_retry_s and reconnect_retry_s. {error.hint}"
                raise DisconnectedError(error.message, hint=hint.rstrip()) from error

    @property
    def _patience_s(self) -> float:
        # Looked at anew after every attempt: the first of them to connect proves that the configuration is right.
        return self._config.reconnect_retry_s if self.connections else self._config.connect_retry_s

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        wait_s = state.next_action.sleep if state.next_action else 0.0
        self._log.info(
            "reconnecting", endpoint=str(self.endpoint), attempt=state.attempt_number, wait_s=round(wait_s, 3)
        )

    async def _connection(self) -> None:
        """One connection, from login to its end. Returns if it was of use, else raises what ended it."""
        before, connected_at_s = self._relay.committed, None
        try:
            thread_id, server, registered, detached = await self._connect()
            connected_at_s = time.monotonic()
            try:
                await self._stream(registered, detached)
            except asyncio.CancelledError:
                await self._say_goodbye(thread_id, server)
                raise
        except (DisconnectedError, ChecksumError) as error:
            event = "not connected" if connected_at_s is None else "disconnected"
            self._log.warning(event, endpoint=str(self.endpoint), error=error.message)
            if isinstance(error, ChecksumError):
                self._allow_once(error)
            steady = connected_at_s is not None and time.monotonic() - connected_at_s >= STEADY_S
            if steady or self._relay.committed != before:
                return
            self._turn += 1
            if isinstance(error, DisconnectedError):
                raise
            raise DisconnectedError(error.message) from error

    def _allow_once(self, error: ChecksumError) -> None:
        # Damage on the wire is gone at the second reading; damage in the primary's file is not.
        if self._damage_at == self._relay.position:
            raise error
        self._damage_at = self._relay.position

    async def _say_goodbye(self, thread_id: int, server: ServerInfo) -> None:
        """End our dump on the server too, as its own replicas do (semisync_slave.cc: kill_connection).

        It would not notice a closed socket before it next has something to send, and count us as connected till then.
        """
        with contextlib.suppress(ReplicaError, TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                login = await log_in(self._config, self.endpoint)
                with contextlib.closing(login):
                    await login.run(end_dump(thread_id, server.server_id))

    async def _connect(self) -> tuple[int, ServerInfo, Registered, Detached]:
        config = self._config
        login = await log_in(config, self.endpoint)
        try:
            server = await login.run(inspect_server(config.server_id))
            self._judge(server)
            await self._find_start(login)
            stored = self._stored()
            if await login.run(verify(stored, server.server_id, may_lag=self._may_lag)):
                await self._verify_last_event(stored)
            registered = await login.run(register(self._registration(stored.position)))
            detached = login.detach()
        except BaseException:
            login.close()
            raise
        self.connections += 1
        self._log.info(
            "connected",
            endpoint=str(self.endpoint),
            version=server.version,
            primary_server_id=server.server_id,
            thread_id=login.thread_id,
            server_id=config.server_id,
            position=str(stored.position),
        )
        return login.thread_id, server, registered, detached

    async def _stream(self, registered: Registered, detached: Detached) -> None:
        session = Session(
            self._relay,
            semi_sync=registered.semi_sync,
            heartbeat_s=self._config.heartbeat_s,
            sync_before_ack=self._config.ack_policy == "fsync",
            max_relay_bytes=self._config.relay_max_bytes,
            on_progress=self._on_progress,
        )
        await session.run(detached.transport, detached.leftover)

    def _judge(self, server: ServerInfo) -> None:
        findings = check(server, self._config.server_id)
        error = refusal(findings, server, str(self.endpoint))
        if error is not None:
            raise error
        for warning in findings.warnings:
            if warning.what not in self._warned:  # once, not at every reconnect
                self._warned.add(warning.what)
                self._log.warning("server setting", what=warning.what, fix=warning.fix)

    async def _find_start(self, login: Login) -> None:
        if self._relay.head.location.offset or self._relay.position:
            return
        if self._start is None:
            self._start = Stored(await login.run(starting_position(self._config.start)))
        if self._start.position:
            self._relay.restart(self._start.position)

    def _stored(self) -> Stored:
        """Where the log ends, for the server and in the binlog of which one."""
        head = self._relay.head
        if not head.location.offset:  # no group yet
            start = self._start
            return start if start is not None and start.position == head.position else Stored(head.position)
        written_by = read_file_head(relay_path(self._relay.directory, head.location.file)).format
        return Stored(head.position, head.primary, parse_header(memoryview(written_by)).server_id)

    async def _verify_last_event(self, stored: Stored) -> None:
        place, event = stored.primary, last_event(self._relay.directory, self._relay.head.location)
        if place is None or event is None or place.position > MAX_DUMP_POSITION:
            return
        login = await log_in(self._config, self.endpoint)
        with contextlib.closing(login):
            await verify_event(login, stored.position, place, event)

    @property
    def _may_lag(self) -> bool:
        # With one host there is nobody else to have the groups that are missing there.
        return len(self._config.endpoints) > 1 or self._config.gtid_ignore_duplicates

    def _registration(self, position: GtidPosition) -> Registration:
        config = self._config
        return Registration(
            server_id=config.server_id,
            position=position,
            heartbeat_s=config.heartbeat_s,
            net_write_timeout_s=config.net_write_timeout_s,
            strict_mode=config.gtid_strict_mode,
            ignore_duplicates=config.gtid_ignore_duplicates,
            annotate=config.annotate,
            semi_sync=config.semi_sync,
            report_host=config.report_host,
        )


def last_event(directory: Path, end: RelayLocation) -> bytes | None:
    """The last event of the group that ends at `end`, a group end; None before the first group."""
    if not end.offset:
        return None
    group = RelayLog(directory).cut(RelayLocation(end.file, 0), end._replace(offset=end.offset - 1), end.offset)
    start = offset = group.location.offset
    with relay_path(directory, end.file).open("rb") as file:
        while offset < end.offset:
            start = offset
            offset += parse_header(memoryview(os.pread(file.fileno(), HEADER_LENGTH, start))).event_length
        return os.pread(file.fileno(), end.offset - start, start)


def describe(error: ReplicaError) -> dict[str, object]:
    """An error as key-value pairs for a structured log or a JSON answer."""
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
