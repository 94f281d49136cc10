"""Reads a replica's relay log: its ranges, single groups, and times, places and transactions as GTID positions.

In: a relay directory, written by this process, by another one, or by none any more; no one is asked and nothing is
locked. Single groups are found by halving (relay_log/groups.py). Refused: what the log does not hold, with what it does
hold; groups that were purged before they were read.
"""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, DataLossError
from replica.files.opening import open_binlog
from replica.log_reader.found import FoundPosition, NextGroup
from replica.log_reader.part import Part
from replica.options.places import shown_instant
from replica.relay_log.directory.identity import stores_lower_case
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.groups.gtid_search import GtidSearch
from replica.relay_log.location import RelayLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.gtid import BinlogPosition, Gtid
    from replica.relay_log.groups.groups import LogGroup
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog

WHOLE_FILES: Final = 1 << 62
"""Bytes of a stretch that is read at once: parts are cut when they are read, not here."""


class RelayLogReader:
    """Read one relay log, as it is at each call."""

    def __init__(self, log: RelayLog) -> None:
        self.log = log

    def parts(self, start: RelayLocation, end: RelayLocation, *, verify: bool = True) -> Iterator[Part]:
        """Yield the groups between two places, a part after the other; a group with DDL alone in its part.

        `verify`: whether checksums are compared.

        Raises:
            DataLossError: some of them were purged.
        """
        lower_case = stores_lower_case(self.log.directory)
        for piece in self.log.ranges(start, end, WHOLE_FILES):
            try:
                binlog = open_binlog(piece.path)
            except ConfigError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise _purged(PurePath(piece.path).name) from None
                raise
            with binlog:
                for found in binlog.ranges(start=piece.start, stop=piece.end, cut_at_ddl=True, verify=verify):
                    yield Part(PurePath(piece.path).name, binlog, found, lower_case)

    def xa_parts(self) -> Iterator[Part]:
        """Yield the parts of the log that its sidecars mark."""
        head = self.log.head()
        if head is not None:
            for number, marked in self.log.xa_stretches(self.log.oldest(), head.location):
                yield from self.parts(RelayLocation(number, marked.start), RelayLocation(number, marked.end))

    def find_group(self, search: GtidSearch) -> LogGroup | None:
        """Find the event group that `search` is for, if the log holds it; else `search` knows its neighbours.

        Raises:
            RelayError: a file of the log is not readable as such.
            DataLossError: a file was purged while it was looked at.
            AmbiguousPositionError: the log holds several with this GTID.
        """
        self.log.refuse_repeated(search.gtid)
        return self.log.steadily(lambda: RelayGroups(self.log.directory).find(search))

    def find(self, search: GtidSearch) -> Part | None:
        """Find the group, and read it."""
        group = self.find_group(search)
        return None if group is None else self.part_of(group)

    def part_of(self, group: LogGroup) -> Part:
        """Make a part that holds that group and nothing else."""
        return next(self.parts(group.before.location, group.after.location))

    def first_since(self, time_s: int, *, accept_gap: bool = False, hint: str) -> LogGroup | None:
        """Find the first group of the log that was committed at `time_s` or later; None if there is none.

        `accept_gap`: also where what was committed from then on may not all be there, which is refused with `hint`.

        Raises:
            ConfigError: the time is still to come, by this machine's clock.
            DataLossError: the log begins later.
        """
        now_s = time.time()
        if time_s > now_s:
            raise ConfigError(
                f"{shown_instant(time_s)} is still to come: it is {shown_instant(int(now_s))}.",
                hint="Name a time that has passed, or latest.",
            )
        found = self.log.steadily(lambda: RelayGroups(self.log.directory).first_at(time_s))
        first = self.log.first_position()
        if found is not None and first and found.before.position == first and not accept_gap:
            raise DataLossError(
                f"the relay log {self.log.directory} begins after {first}, with a transaction of "
                f"{shown_instant(found.after.timestamp)}: what was committed from {shown_instant(time_s)} on may not "
                "all be there.",
                hint=hint,
            )
        return found

    def at_time(self, time_s: int) -> FoundPosition:
        """Find the position before the first group that was committed at `time_s` or later; the log's end if none was.

        Raises:
            ConfigError: the time is still to come.
            DataLossError: the log begins later.
        """
        head = self._head()
        found = self.first_since(time_s, hint="Name a later time, or ask the primary (--direct).")
        return FoundPosition((head if found is None else found.before).position, _next(found))

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Find the position of a place of the primary's binlog; inside an event group, the position before it.

        Raises:
            DataLossError: the log has not got that part of the primary's binlog.
        """
        head = self._head()
        around = self.log.steadily(lambda: RelayGroups(self.log.directory).around(place))
        if around is None:
            first = self.log.first_position() or "no transaction"
            raise DataLossError(
                f"the relay log holds nothing of {place}: it begins after {first} and is at {head.primary}.",
                hint="Ask the primary (--direct).",
            )
        return FoundPosition(around.before.position, _next(around.group), inside=around.inside)

    def behind(self, gtid: Gtid) -> FoundPosition:
        """Find the position, in all domains, behind the event group of a GTID.

        Raises:
            AmbiguousPositionError: the log holds several with this GTID.
            DataLossError: the log does not hold it.
        """
        head = self._head()
        found = self.find_group(GtidSearch(gtid))
        if found is None:
            raise DataLossError(
                f"{gtid} is not in the relay log, which goes from {self.log.first_position() or 'the beginning'} to "
                f"{head.position}.",
                hint="mariadb-replica explain tells why.",
            )
        end = found.after
        following = self.log.steadily(lambda: RelayGroups(self.log.directory).next_to(end.location))
        return FoundPosition(end.position, _next(following))

    def _head(self) -> RelayHead:
        head = self.log.head()
        if head is None:
            raise DataLossError(
                f"the relay log {self.log.directory} is empty.", hint="Its replica has not begun it yet."
            )
        return head


def _next(group: LogGroup | None) -> NextGroup | None:
    return None if group is None else NextGroup.of(group)


def _purged(name: str) -> DataLossError:
    return DataLossError(
        f"{name} was purged before it was read.",
        hint="The replica's retention removes files by age and size: keep them longer, or start nearer to the end.",
    )
