"""Steps from an address to a started dump, and the goodbye at its end.

In: a configuration, the relay log and an endpoint. Out: a `Dump`, whose transport a session uses. The order of the
steps matters. Log in. End the dump of an earlier process of ours. Refuse to continue if another replica has our server
id. Check the server's settings. Find the position, and check that the server's binlog is still the same. Register.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replica.errors import DataLossError, DuplicateServerIdError, ReplicaError, ServerError
from replica.handshake.login.login import Detached, Login, log_in
from replica.handshake.primary.server import (
    ServerInfo,
    ServerThread,
    check,
    end_dump,
    inspect_server,
    is_leaving,
    namesake,
    refusal,
    this_thread,
)
from replica.handshake.registration import SEMI_SYNC_VARIABLE, Registered, Registration, register
from replica.handshake.start.resume import PlaceState, Stored, verify, verify_content
from replica.handshake.start.start import place_of, place_of_start, starting_position
from replica.relay_log.directory.identity import CopiedFrom, DumpThread, Identity, Owner, take_identity, write_identity
from replica.relay_log.directory.lock import removed
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.location import relay_path
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import fingerprint_at, last_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_writer.writer import RelayWriter

GOODBYE_TIMEOUT_S = 3.0
"""Timeout of the goodbye in seconds. A stop must not hang on a hanging server, which notices at its next heartbeat."""
NAMESAKE_MARGIN_S = 1.0
"""Seconds for a primary's cleanup, after the heartbeat period in which it notices that a replica vanished."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Dump that has begun after `position`."""

    endpoint: Endpoint
    thread: ServerThread
    server: ServerInfo
    position: GtidPosition
    registered: Registered
    detached: Detached


class Connector:
    """Starter of dumps for one relay log, one at a time.

    Args:
        config: the account, and the options of the dump.
        relay: the open writer. An empty log is set to the starting position.
        log: receives events with key-value pairs.
        start: where an empty log starts, with its place in the primary's binlog if that is known. None for the
            configuration's `start`.
        owner: the program that runs the replica.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        relay: RelayWriter,
        *,
        log: FilteringBoundLogger,
        start: Stored | None,
        owner: Owner,
    ) -> None:
        self._config = config
        self._relay = relay
        self._log = log
        self._start = start
        self._owner: Owner = owner
        self._identity: Identity | None = None
        self._warned: set[str] = set()

    @property
    def server_id(self) -> int:
        """Our server id: the configured one, else the one that belongs to the relay directory."""
        return self._taken_identity().server_id

    def reload(self, config: ReplicaConfig) -> None:
        """Use the hosts of this configuration from the next attempt on."""
        self._config = config

    async def connect(self, endpoint: Endpoint) -> Dump:
        """Begin a dump after the last complete group.

        Raises:
            DisconnectedError: the server cannot be reached, or does not have the position yet but may get it.
            DuplicateServerIdError: another replica has our server id.
            PrerequisiteError: the server's settings or the account do not allow it.
            ReplicaError: any other error of login, checks or registration.
        """
        login = await log_in(self._config, endpoint)
        try:
            return await self._begin(login)
        except BaseException:
            login.close()
            raise

    async def _begin(self, login: Login) -> Dump:
        server_id, endpoint = self.server_id, login.endpoint
        await self._end_leftovers(login)
        await self._refuse_namesakes(login)
        server = await login.run(inspect_server(server_id))
        self._judge(server, endpoint)
        thread = await login.run(this_thread())
        await self._find_start(login, server)
        stored = self._stored()
        here = await login.run(verify(stored, server, may_lag=self._may_lag))
        if here is not PlaceState.PLACE:
            place_of_start(
                stored, unchanged=False
            )  # before the content check, which uses a number that may occur twice
        unchanged = await self._verify_content(stored, here, endpoint)
        place = place_of_start(stored, unchanged=unchanged)
        if not self._relay.begun:
            self._restart(stored)  # last, so that a position that this server refuses is never stored
        if place is not None and self._config.semi_sync and self._config.ack_policy == "fsync":
            self._relay.sync()  # a dump that begins at a place acknowledges everything before it
        self._note_source(server, DumpThread(str(endpoint), *thread))
        registered = await login.run(register(self._registration(stored.position, place)))
        if registered.semi_sync and not registered.semi_sync_enabled:
            self._warn_once(
                "semi_sync is set, but the primary's commits do not wait for replicas now",
                f"SET GLOBAL {SEMI_SYNC_VARIABLE} = ON; acknowledgements begin with it, without a reconnect",
            )
        return Dump(endpoint, thread, server, stored.position, registered, login.detach())

    async def say_goodbye(self, dump: Dump) -> None:
        """End our dump on the server too, as its own replicas do (semisync_slave.cc: kill_connection).

        The server would notice a closed socket only when it next has something to send, and count us as connected until
        then.
        """
        with contextlib.suppress(ReplicaError, TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                login = await log_in(self._config, dump.endpoint)
                with contextlib.closing(login):
                    await login.run(end_dump(dump.thread))
            self._keep(self._taken_identity().without_connection(DumpThread(str(dump.endpoint), *dump.thread)))

    # -- server id and other replicas ----------------------------------------------------------------------------

    def _taken_identity(self) -> Identity:
        if self._identity is None:
            self._identity = take_identity(
                self._relay.directory,
                drawn=self._config.server_id,
                configured="server_id" in self._config.model_fields_set,
                owner=self._owner,
            )
        return self._identity

    def _keep(self, identity: Identity) -> None:
        self._identity = identity
        self._relay.names.ensure_ours()  # otherwise the identity might replace that of another replica
        write_identity(self._relay.directory, identity)

    async def _end_leftovers(self, login: Login) -> None:
        for thread in self._last_threads():
            try:
                if await login.run(end_dump(thread)):
                    self._log.info("ended our own old dump", endpoint=str(login.endpoint), thread_id=thread.thread_id)
            except ServerError as error:
                # Another kind of server, or another account: its dumps are not ours.
                self._log.info("cannot look for an old dump of ours", endpoint=str(login.endpoint), error=error.message)

    async def _refuse_namesakes(self, login: Login) -> None:
        where = await login.run(namesake(self.server_id, self._config.heartbeat_s + NAMESAKE_MARGIN_S))
        if where is None:
            return
        for thread in self._last_threads():
            with contextlib.suppress(ServerError):  # already reported by _end_leftovers
                if await login.run(is_leaving(thread)):
                    # Do not wait until it vanishes: the thread may itself wait until a replica connects.
                    said = "our own old dump is ended but still listed"
                    self._log.warning(said, endpoint=str(login.endpoint), thread_id=thread.thread_id)
                    return
        raise DuplicateServerIdError(
            f"another replica of {login.endpoint}, at {where}, has our server id {self.server_id}.",
            hint="Give every replica its own server_id. If this relay directory is a copy of another one's, "
            "remove relay.identity from it.",
        )

    def _last_threads(self) -> list[ServerThread]:
        connections = self._taken_identity().connections
        return [ServerThread(last.server_id, last.started, last.thread_id, last.client) for last in connections]

    def _judge(self, server: ServerInfo, endpoint: Endpoint) -> None:
        findings = check(server, self.server_id, hosts=len(set(self._config.endpoints)))
        error = refusal(findings, server, str(endpoint))
        if error is not None:
            raise error
        for warning in findings.warnings:
            self._warn_once(warning.what, warning.fix)

    def _warn_once(self, what: str, fix: str) -> None:
        if what not in self._warned:  # once, not at every reconnect
            self._warned.add(what)
            self._log.warning("server setting", what=what, fix=fix)

    # -- starting position ---------------------------------------------------------------------------------------

    async def _find_start(self, login: Login, server: ServerInfo) -> None:
        if self._start is None and not self._relay.begun:
            position = await login.run(starting_position(self._config.start))
            place = await login.run(place_of(position)) if self._config.start == "latest" and position else None
            highest = self._relay.highest  # of an earlier log, whose files are lost
            self._start = Stored(position, place, server.server_id, highest=highest, uid=server.uid)

    def _restart(self, start: Stored) -> None:
        of_start = start.reached in (None, start.position) and not self._config.gtid_strict_mode
        place = start.primary if of_start else None
        self._relay.restart(start.position, highest=start.highest, place=place)

    def _stored(self) -> Stored:
        """Return where the log ends, and of which server's binlog that is."""
        head = self._relay.head
        if not head.location.offset:  # no group yet
            start = self._start
            known = start is not None and (start.position == head.position or not self._relay.begun)
            return start if start is not None and known else Stored(head.position, highest=self._relay.highest)
        directory, file = self._relay.directory, head.location.file
        with self._reading_log():
            written_by = read_file_head(relay_path(directory, file)).server_id
            uid, last = self._taken_identity().source_of(file), fingerprint_at(RelayLog(directory), head.location)
        return Stored(head.position, head.primary, written_by, highest=self._relay.highest, uid=uid, last=last)

    @contextlib.contextmanager
    def _reading_log(self) -> Iterator[None]:
        """Convert errors of reading the end of our log: only a foreign process can have removed its last file."""
        try:
            yield
        except (FileNotFoundError, DataLossError) as error:
            directory = self._relay.directory
            raise removed(directory, str(relay_path(directory, self._relay.head.location.file))) from error

    async def _verify_content(self, stored: Stored, here: PlaceState, endpoint: Endpoint) -> bool:
        """Return True if the server has our place, unchanged."""
        with self._reading_log():
            event = last_event(RelayLog(self._relay.directory), self._relay.head.location)
        compared = await verify_content(self._config, endpoint, stored, here, event)
        if compared.elsewhere:
            gtid = str(stored.last.gtid) if stored.last is not None else str(stored.position)
            if compared.why:
                said = "cannot compare the last transaction"
                self._log.warning(said, endpoint=str(endpoint), gtid=gtid, why=compared.why)
            else:
                self._log.info("goes on from another server", endpoint=str(endpoint), gtid=gtid)
        return compared.unchanged

    def _note_source(self, server: ServerInfo, connection: DumpThread) -> None:
        """Store the source of the next bytes, and the dump that a restart has to end, before the first byte arrives."""
        identity, relay = self._taken_identity().with_connection(connection), self._relay
        if not identity.sources or identity.sources[-1].uid != server.uid:
            identity = identity.with_source(CopiedFrom(relay.change_server(), server.uid))
        self._keep(replace(identity, lower_case=server.lower_case))

    @property
    def _may_lag(self) -> bool:
        # With one host, no other host can have the missing groups.
        return len(self._config.endpoints) > 1 or self._config.gtid_ignore_duplicates

    def _registration(self, position: GtidPosition, place: BinlogPosition | None) -> Registration:
        config = self._config
        return Registration(
            server_id=self.server_id,
            position=position,
            place=place,
            heartbeat_s=config.heartbeat_s,
            net_write_timeout_s=config.net_write_timeout_s,
            strict_mode=config.gtid_strict_mode,
            ignore_duplicates=config.gtid_ignore_duplicates,
            annotate=config.annotate,
            semi_sync=config.semi_sync,
            report_host=config.report_host,
        )


# A server may refuse because its binlog was reset, its account lacks a privilege, or its file is damaged. That does
# not end a replica that has another server. The replica ends only after every server has refused without a useful
# connection in between. A server that cannot be reached has not refused.


class Hosts:
    """Servers of one replica. `current` is the server in use, or the next one to try."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._turn = 0
        self._refusals: dict[Endpoint, ReplicaError] = {}

    @property
    def current(self) -> Endpoint:
        return self._endpoints[self._turn]

    @property
    def several(self) -> bool:
        return len(self._endpoints) > 1

    def advance(self) -> None:
        self._turn = (self._turn + 1) % len(self._endpoints)

    def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the servers. One that stays keeps its turn and its refusal."""
        current = self.current
        self._endpoints = tuple(endpoints)
        self._turn = self._endpoints.index(current) if current in self._endpoints else 0
        self._refusals = {one: said for one, said in self._refusals.items() if one in self._endpoints}

    def served(self) -> None:
        """Record that the current server was useful. Earlier refusals of other servers may no longer hold."""
        self._refusals.clear()

    def refused(self, error: ReplicaError) -> bool:
        """Record that the current server refused permanently. Return True if the refusal is new."""
        before = self._refusals.get(self.current)
        self._refusals[self.current] = error
        return before is None or before.message != error.message

    @property
    def verdict(self) -> ReplicaError | None:
        """The error to raise once every server has refused.

        The error has the type of the first refusal, and its message names all refusals.
        """
        if len(self._refusals) < len(set(self._endpoints)):
            return None
        first = self._refusals[self._endpoints[0]]
        if not self.several:
            return first
        error = copy.copy(first)
        error.message = f"every server refused. {self.refusals}"
        return error

    @property
    def refusals(self) -> str:
        """The servers that refused and their reasons, in words; empty if none did."""
        return " ".join(f"{endpoint}: {error.message}" for endpoint, error in self._refusals.items())
