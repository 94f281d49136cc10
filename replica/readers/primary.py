"""Search for GTID positions on a primary by time, place or transaction, without receiving its whole binlog.

`PrimaryReader` finds the binlog file by binary search over the starts of the files. Then it receives the needed part of
that file into a temporary relay log.

A search by time returns the first group in binlog order that was committed at that time or later. It begins in the last
file whose first event is at least DISORDER_S older. Commit times that a session set itself (SET timestamp, a replayed
binlog) count as they are. Prepared XA transactions are searched from the last file backwards, up to the size limit of a
relay log.

Refused: times in the future or before the oldest binlog, places at which no event begins, and missing transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from replica.errors import ConfigError, DisconnectedError, PositionLostError, PositionPurgedError, ServerError
from replica.handshake.login.login import ask, attempt, log_in
from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog import (
    ER_NO_SUCH_PLACE,
    MAX_DUMP_POSITION,
    BinlogFiles,
    begun_at,
    binlog_files,
    group_at,
    last_begun_by,
    state_at,
)
from replica.handshake.start.start import gtids, latest_position
from replica.live.embedded import EmbeddedReplica
from replica.options.config import FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID
from replica.options.values import shown_instant
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import Gtid, GtidPosition, Order, covers
from replica.readers.log.reader import FoundPosition, NextGroup
from replica.relay_log.groups.groups import DISORDER_S, GtidSearch, RelayGroups
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.walks.xa import follow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.groups.groups import Around, LogGroup
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.xa import Prepared, PreparedGroup

    FindGroup = Callable[[RelayGroups, RelayLocation], LogGroup | None]

# The replica of `temporary_log` has its own server id, never acknowledges transactions, and keeps at most OWN_LOG_BYTES
# on disk.


OWN_FILE_BYTES: Final = 16 << 20
"""Size in bytes after which a new relay file begins.

Processed files are removed as a whole, so small files free disk space sooner. A transaction is never split.
"""
OWN_LOG_BYTES: Final = 256 << 20
"""Size of the temporary log in bytes at which receiving pauses until the caller has processed the log."""


class TemporaryLog(NamedTuple):
    """Temporary relay log, and the replica that writes it."""

    log: RelayLog
    replica: EmbeddedReplica


@contextlib.contextmanager
def temporary_log(
    config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger, **options: object
) -> Iterator[TemporaryLog]:
    """Receive the binlog after `start` into a temporary relay log, which is deleted at the end of the block.

    Args:
        config: Configuration of the primary.
        start: latest, earliest, or a GTID position.
        log: Logger of the replica.
        options: Options that override those of `config`.

    Raises:
        ReplicaError: Any error that `EmbeddedReplica` raises.
    """
    with tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder:
        own = config.model_copy(
            update={
                "server_id": random.SystemRandom().randint(FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID),
                "semi_sync": False,
                "annotate": True,
                "relay_dir": Path(folder),
                "relay_max_file_bytes": OWN_FILE_BYTES,
                "relay_max_bytes": OWN_LOG_BYTES,
                "start": start if isinstance(start, str) else "latest",
                **options,
            }
        )
        with EmbeddedReplica(own, Path(folder), log=log) as replica:
            replica.start(None if isinstance(start, str) else start)
            yield TemporaryLog(replica.log, replica)


# `search_binlog` keeps at most OWN_LOG_BYTES plus one transaction on disk at a time, and decodes nothing.


POLL_S: Final = 0.1
SILENCE_S: Final = 120.0
"""Maximum silence of the primary in seconds.

On a slow disk, the primary needs a minute to find a position inside a file of 1 GB.
"""


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes:
        group: The found group; None if the search reached its end without a match.
        opened: XA transactions prepared before the group, oldest first, with the position before each.
        following: The group after `group`; None if there is none.
    """

    group: LogGroup | None
    opened: Mapping[XaId, GtidPosition]
    following: LogGroup | None

    @property
    def resume(self) -> GtidPosition | None:
        """Position from which a reader also gets the rows of prepared XA transactions, see FoundPosition."""
        return next(iter(self.opened.values()), None)


class TooFarError(Exception):
    """The search would receive more than `most_bytes`. Callers in this package must catch this error."""


def search_binlog(
    config: ReplicaConfig,
    start: GtidPosition,
    end: GtidPosition,
    find_group: FindGroup,
    log: FilteringBoundLogger,
    *,
    most_bytes: int | None = None,
) -> SearchResult:
    """Receive the binlog after `start` until `find_group` finds a group, or up to `end`.

    Args:
        config: Configuration of the primary.
        start: Position after which the search begins.
        end: Position at which the search ends.
        find_group: Called repeatedly with the groups of the log, and with the location up to which it has searched
            them.
        log: Logger of the replica.
        most_bytes: Maximum bytes to receive; None for no limit.

    Raises:
        TooFarError: `end` is more than `most_bytes` after `start`.
        DisconnectedError: Nothing arrives for SILENCE_S.
        ReplicaError: Any error that ends a replica.
    """
    if _reached(start, end):
        return SearchResult(None, {}, None)
    with temporary_log(config, start, log) as temporary:
        replica = temporary.replica
        groups, opened = RelayGroups(temporary.log.directory), _Opened(temporary.log)
        seen = RelayLocation(0, 0)
        silent_s, removed = 0.0, 0
        while True:
            head = replica.head()
            if head.location.offset:
                if most_bytes is not None and removed + temporary.log.total_bytes() > most_bytes:
                    raise TooFarError
                found = find_group(groups, seen)
                if found is not None:
                    opened.follow_to(found.before)
                    return SearchResult(found, opened.positions, _following(replica, groups, found, end))
                opened.follow_to(head)
                if _reached(head.position, end):
                    return SearchResult(None, opened.positions, None)
                seen = head.location
                processed = [
                    relay_path(temporary.log.directory, number)
                    for number in range(temporary.log.oldest().file, seen.file)
                ]
                removed += sum(path.stat().st_size for path in processed)
                temporary.log.purge_before(seen)
            if replica.wait_beyond(head.location, POLL_S):
                silent_s = 0.0
            elif (silent_s := silent_s + POLL_S) > SILENCE_S:
                raise DisconnectedError(f"{temporary.log.directory}: the primary sends nothing after {head.position}.")


def _following(replica: EmbeddedReplica, groups: RelayGroups, found: LogGroup, end: GtidPosition) -> LogGroup | None:
    """Return the group after `found`; None if the binlog ends with `found`."""
    if not _reached(found.after.position, end):
        replica.wait_beyond(found.after.location, SILENCE_S)
    return groups.next_to(found.after.location)


def _reached(position: GtidPosition, end: GtidPosition) -> bool:
    return position.compare(end) in (Order.EQUAL, Order.AFTER)


class _Opened:
    """XA transactions that are prepared and not ended at a location, which `follow_to` moves forward."""

    def __init__(self, log: RelayLog) -> None:
        self._log = log
        self._at: RelayLocation | None = None
        self._prepared: Prepared = ()
        self._before: dict[PreparedGroup, GtidPosition] = {}

    def follow_to(self, head: RelayHead) -> None:
        start = self._at or RelayLocation(min(1, head.location.file), 0)
        _, self._prepared = follow(self._log, [(start, head.location)], self._prepared)
        self._at = head.location
        self._before = {
            group: self._before.get(group) or self._log.at(group.location).position for group in self._prepared
        }

    @property
    def positions(self) -> dict[XaId, GtidPosition]:
        return {group.xid: self._before[group] for group in self._prepared}


_Result = TypeVar("_Result")

_CLOCK = "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP())"


class _Beginning(NamedTuple):
    """Start and end of a search.

    `gap_s` is the time at which the binlogs begin (seconds since 1970), if the server has purged transactions after the
    searched time.
    """

    endpoint: Endpoint
    start: GtidPosition
    end: GtidPosition
    gap_s: int | None = None


class PrimaryReader:
    """Searcher on the primary in `config`. Retried connections are logged to `log`."""

    def __init__(self, config: ReplicaConfig, log: FilteringBoundLogger) -> None:
        self._config = config
        self._log = log

    def at_time(self, time_s: int, *, accept_gap: bool = False) -> FoundPosition:
        """Return the position before the first group that was committed at a time or later.

        Without such a group, return the end of the binlog.

        Args:
            time_s: Time in seconds since 1970.
            accept_gap: For a time before the oldest binlog file, return the start of that file instead of an error.

        Raises:
            ConfigError: The time is in the future by the server's clock.
            PositionPurgedError: Binlogs from that time were removed.
            ReplicaError: Any error of the queries or the dump.
        """
        config = self._config
        beginning = asyncio.run(attempt(config, lambda endpoint: _begin_at_time(config, endpoint, time_s)))
        if beginning.gap_s is not None and not accept_gap:
            raise PositionPurgedError(
                f"the binlogs of {beginning.endpoint} begin at {shown_instant(beginning.gap_s)}: some of what "
                f"was committed from {shown_instant(time_s)} on is purged.",
                hint=f"Start at a later time, or at earliest, which is {beginning.start}, and accept the gap.",
            )
        result = self._search(beginning, lambda groups, seen: groups.first_at(time_s, seen))
        return _found(result, beginning)

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Return the position of a place from SHOW MASTER STATUS, mariadb-dump --master-data or a backup tool.

        Inside an event group, return the position before that group.

        Raises:
            ConfigError: The server has no such file, or no event begins there.
            ReplicaError: Any error of the queries or the dump.
        """
        if place.position > MAX_DUMP_POSITION:
            raise ConfigError(
                f"{place} is beyond 4 GiB; a server cannot look up such an offset.",
                hint="Name a time or a GTID, or the binlog file itself.",
            )
        config = self._config
        beginning, found = asyncio.run(attempt(config, lambda endpoint: _begin_at_place(config, endpoint, place)))
        if found is not None:
            return found
        result = self._search(beginning, lambda groups, _: _holding(groups.around(place)))
        return replace(_found(result, beginning), inside=True)

    def after_group(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID.

        Raises:
            PositionLostError: The server's binlog does not contain the GTID.
            ReplicaError: Any error of the queries or the dump.
        """
        config, search = self._config, GtidSearch(gtid)
        beginning = asyncio.run(attempt(config, lambda endpoint: _begin_before(config, endpoint, gtid)))
        result = self._search(beginning, lambda groups, seen: groups.find(search, seen))
        if result.group is None:
            raise _unknown_gtid(gtid, beginning.endpoint, beginning.end)
        following = NextGroup.of_complete(result.following) if result.following else None
        return FoundPosition(result.group.after.position, following)

    def file_before(self, position: GtidPosition) -> GtidPosition:
        """Return the start of the last binlog file that begins at or before `position`.

        Raises:
            PositionPurgedError: All remaining binlogs begin after the position.
            ReplicaError: Any error of the queries.
        """
        config = self._config
        found = asyncio.run(ask(config, lambda _: _last_file_within(position)))
        if found is None:
            raise PositionPurgedError(f"the remaining binlogs begin after {position}.")
        return found

    def before_prepared(self, xids: Collection[XaId], end: GtidPosition) -> GtidPosition | None:
        """Return the position before the first PREPARE of these XA transactions, which are all open at `end`.

        The search goes backwards from the last file, doubles the number of files each time, and ends at the size limit
        of a relay log. Return None if a transaction is not found.

        Raises:
            ReplicaError: Any error of the queries or the dump.
        """
        config = self._config
        files = asyncio.run(ask(config, lambda _: binlog_files()))
        most, count = files.newest + 1 - files.oldest, 0
        while count < most:
            count = min(most, max(1, 2 * count))
            name = files.name(files.newest + 1 - count)
            start = asyncio.run(ask(config, lambda _, name=name: _position_at(name)))  # type: ignore[misc]
            try:
                result = search_binlog(
                    config, start, end, lambda *_: None, self._log, most_bytes=config.relay_max_bytes
                )
            except TooFarError:
                return None
            found = [before for xid, before in result.opened.items() if xid in xids]
            if len(found) == len(xids):
                return found[0]
        return None

    def _search(self, beginning: _Beginning, find_group: FindGroup) -> SearchResult:
        return search_binlog(self._config, beginning.start, beginning.end, find_group, self._log)


def _found(result: SearchResult, beginning: _Beginning) -> FoundPosition:
    if result.group is None:
        return FoundPosition(beginning.end, None, result.resume)
    return FoundPosition(result.group.before.position, NextGroup.of_complete(result.group), result.resume)


def _holding(around: Around | None) -> LogGroup | None:
    return around.group if around is not None else None


# -- queries to one server -------------------------------------------------------------------------------------------


async def _run(config: ReplicaConfig, endpoint: Endpoint, steps: Steps[_Result]) -> _Result:
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        return await login.run(steps)


def _files_end_and_clock() -> Steps[tuple[BinlogFiles, GtidPosition, int]]:
    files = yield from binlog_files()
    end = yield from latest_position()
    rows = yield Query(_CLOCK)
    return files, end, int(rows[0][0] or 0)


def _position_at(file: str) -> Steps[GtidPosition]:
    return GtidPosition.last_of(gtids((yield from state_at(file, FIRST_POSITION))))


async def _begin_at_time(config: ReplicaConfig, endpoint: Endpoint, time_s: int) -> _Beginning:
    files, end, clock_s = await _run(config, endpoint, _files_end_and_clock())
    if time_s > clock_s:
        raise ConfigError(
            f"{shown_instant(time_s)} is in the future: it is {shown_instant(clock_s)} by the clock of {endpoint}.",
            hint="Name a time that has passed, or latest.",
        )
    file = await last_begun_by(config, endpoint, files, time_s - DISORDER_S)
    if file is not None:
        return _Beginning(endpoint, await _run(config, endpoint, _position_at(file.name)), end)
    oldest = files.name(files.oldest)
    begun_s = await begun_at(config, endpoint, oldest)
    start = await _run(config, endpoint, _position_at(oldest))
    # If the oldest binlog begins at the empty position, the server has purged nothing.
    complete = begun_s is not None and (begun_s <= time_s or not start)
    return _Beginning(endpoint, start, end, None if complete else begun_s)


async def _begin_at_place(
    config: ReplicaConfig, endpoint: Endpoint, place: BinlogPosition
) -> tuple[_Beginning, FoundPosition | None]:
    """Return where to search, or the position itself if the place is not inside a group."""
    state, start, end = await _run(config, endpoint, _states(place))
    if state is None:
        files = await _run(config, endpoint, binlog_files())
        raise ConfigError(
            f"{place} is not a place in the binlog of {endpoint}: it has the files {files.name(files.oldest)} to "
            f"{files.name(files.newest)}, and no event begins at that offset.",
            hint="Copy file and position as the server or the backup tool printed them.",
        )
    beginning = _Beginning(endpoint, start, end)
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        try:
            here = await group_at(login, place)
        except ServerError as error:
            if error.code != ER_NO_SUCH_PLACE:
                raise
            here = None
    if here is not None and here.inside:
        return beginning, None
    following = NextGroup(here.gtid) if here is not None and here.gtid else None
    return beginning, FoundPosition(GtidPosition.last_of(gtids(state)), following)


def _states(place: BinlogPosition) -> Steps[tuple[str | None, GtidPosition, GtidPosition]]:
    state = yield from state_at(place.file, place.position)
    return state, (yield from _position_at(place.file)), (yield from latest_position())


async def _begin_before(config: ReplicaConfig, endpoint: Endpoint, gtid: Gtid) -> _Beginning:
    files, end, _ = await _run(config, endpoint, _files_end_and_clock())
    last = end.get(gtid.domain_id)
    if last is None or last.seq_no < gtid.seq_no:
        raise _unknown_gtid(gtid, endpoint, end)
    start = await _run(config, endpoint, _last_file_before(files, gtid))
    if start is None:
        raise _unknown_gtid(gtid, endpoint, end)
    return _Beginning(endpoint, start, end)


def _last_file_before(files: BinlogFiles, gtid: Gtid) -> Steps[GtidPosition | None]:
    """Return the start of the last file that begins before the GTID; None if it was purged."""
    found = None
    low, high = files.oldest, files.newest + 1
    while low < high:
        middle = (low + high) // 2
        position = yield from _position_at(files.name(middle))
        known = position.get(gtid.domain_id)
        if known is None or known.seq_no < gtid.seq_no:
            found, low = position, middle + 1
        else:
            high = middle
    return found


def _last_file_within(limit: GtidPosition) -> Steps[GtidPosition | None]:
    """Return the start of the last file that begins at or before `limit`; None if it was purged."""
    files = yield from binlog_files()
    found = None
    low, high = files.oldest, files.newest + 1
    while low < high:
        middle = (low + high) // 2
        position = yield from _position_at(files.name(middle))
        if covers(limit, position):
            found, low = position, middle + 1
        else:
            high = middle
    return found


def _unknown_gtid(gtid: Gtid, endpoint: Endpoint, end: GtidPosition) -> PositionLostError:
    return PositionLostError(
        f"{gtid} is not in the binlog of {endpoint}, which ends at {end or 'no transaction'}.",
        hint="Run mariadb-replica explain to see why.",
    )
