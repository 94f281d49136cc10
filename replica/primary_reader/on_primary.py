"""Find GTID positions on a primary by time, place or transaction, without receiving its whole binlog.

`PrimaryReader` finds the file by binary search over the beginnings of the files. Then it receives the needed part of
that file into a temporary relay log. A search by time starts in the last file that began DISORDER_S before the time. It
returns the first group in binlog order that was committed at that time or later. A session that sets its own time (SET
timestamp, a replayed binlog) counts with that time.

Prepared XA transactions are searched from the last file backwards, up to the size limit of a relay log. Times in the
future or before the oldest binlog are refused. So are places at which no event begins, and missing transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from replica.errors import ConfigError, PositionLostError, PositionPurgedError, ServerError
from replica.handshake.ask import ask, attempt
from replica.handshake.login.login import log_in
from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog_files import BinlogFiles, begun_at, binlog_files, last_begun_by, state_at
from replica.handshake.start.peek import ER_NO_SUCH_PLACE, MAX_DUMP_POSITION, group_at
from replica.handshake.start.start import gtids, latest_position
from replica.log_reader.found import FoundPosition, NextGroup
from replica.options.places import shown_instant
from replica.primary_reader.passing import Passed, TooFarError, pass_by
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import Gtid, GtidPosition, covers
from replica.relay_log.groups.groups import DISORDER_S
from replica.relay_log.groups.gtid_search import GtidSearch

if TYPE_CHECKING:
    from collections.abc import Collection

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import Endpoint, ReplicaConfig
    from replica.primary_reader.passing import Look
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.groups.groups import Around, LogGroup

_Result = TypeVar("_Result")

_CLOCK = "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP())"


class _Beginning(NamedTuple):
    """Start and end of a search; `gap_s`: time at which the binlogs begin, if it is later than the searched time."""

    endpoint: Endpoint
    start: GtidPosition
    end: GtidPosition
    gap_s: int | None = None


class PrimaryReader:
    """Reader of the primary in `config`; retried connections are logged to `log`."""

    def __init__(self, config: ReplicaConfig, log: FilteringBoundLogger) -> None:
        self._config = config
        self._log = log

    def at_time(self, time_s: int, *, accept_gap: bool = False) -> FoundPosition:
        """Return the position before the first group committed at `time_s` (seconds since 1970) or later, or the
        binlog's end.

        With `accept_gap`, a time before the oldest binlog file returns the start of that file.

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
        passed = self._pass_by(beginning, lambda groups, seen: groups.first_at(time_s, seen))
        return _found(passed, beginning)

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
        beginning, found = asyncio.run(attempt(config, lambda endpoint: _look_at_place(config, endpoint, place)))
        if found is not None:
            return found
        passed = self._pass_by(beginning, lambda groups, _: _holding(groups.around(place)))
        return replace(_found(passed, beginning), inside=True)

    def behind(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID.

        Raises:
            PositionLostError: The server's binlog does not contain the GTID.
            ReplicaError: Any error of the queries or the dump.
        """
        config, search = self._config, GtidSearch(gtid)
        beginning = asyncio.run(attempt(config, lambda endpoint: _begin_before(config, endpoint, gtid)))
        passed = self._pass_by(beginning, lambda groups, seen: groups.find(search, seen))
        if passed.group is None:
            raise _not_there(gtid, beginning.endpoint, beginning.end)
        following = NextGroup.of_whole(passed.following) if passed.following else None
        return FoundPosition(passed.group.after.position, following)

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
                passed = pass_by(config, start, end, lambda *_: None, self._log, most_bytes=config.relay_max_bytes)
            except TooFarError:
                return None
            found = [before for xid, before in passed.opened.items() if xid in xids]
            if len(found) == len(xids):
                return found[0]
        return None

    def _pass_by(self, beginning: _Beginning, look: Look) -> Passed:
        return pass_by(self._config, beginning.start, beginning.end, look, self._log)


def _found(passed: Passed, beginning: _Beginning) -> FoundPosition:
    if passed.group is None:
        return FoundPosition(beginning.end, None, passed.resume)
    return FoundPosition(passed.group.before.position, NextGroup.of_whole(passed.group), passed.resume)


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


async def _look_at_place(
    config: ReplicaConfig, endpoint: Endpoint, place: BinlogPosition
) -> tuple[_Beginning, FoundPosition | None]:
    """Return where to search, and the position; the position is None if the place is inside a group."""
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
        raise _not_there(gtid, endpoint, end)
    start = await _run(config, endpoint, _last_file_before(files, gtid))
    if start is None:
        raise _not_there(gtid, endpoint, end)
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


def _not_there(gtid: Gtid, endpoint: Endpoint, end: GtidPosition) -> PositionLostError:
    return PositionLostError(
        f"{gtid} is not in the binlog of {endpoint}, which ends at {end or 'no transaction'}.",
        hint="Run mariadb-replica explain to see why.",
    )
