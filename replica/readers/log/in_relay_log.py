"""Reader of a relay log: ranges, single groups, and positions for times, places and transactions.

`RelayLogReader` works on a relay directory that this process, another one or no process writes. It sends no query and
takes no lock. Single groups are found by binary search (relay_log/groups/groups.py). Errors for missing groups say what
the log contains. Groups purged before they were read are an error too.
"""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, DataLossError
from replica.options.values import shown_instant
from replica.readers.files.binlog import open_binlog
from replica.readers.log.reader import FoundPosition, NextGroup, Part
from replica.relay_log.directory.identity import stores_lower_case
from replica.relay_log.groups.groups import GtidSearch, RelayGroups
from replica.relay_log.location import RelayLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.gtid import BinlogPosition, Gtid
    from replica.relay_log.groups.groups import LogGroup
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog

WHOLE_FILES: Final = 1 << 62
"""Bytes per range, larger than any file: parts are cut later, when they are read."""


class RelayLogReader:
    """Reader of one relay log; every call sees its current state."""

    def __init__(self, log: RelayLog) -> None:
        self.log = log

    def parts(self, start: RelayLocation, end: RelayLocation, *, verify: bool = True) -> Iterator[Part]:
        """Yield the groups between two locations as parts; a group with DDL is a part of its own.

        `verify`: whether checksums are verified.

        Raises:
            DataLossError: Groups were purged.
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
        """Yield the parts of the log that the index files mark."""
        head = self.log.head()
        if head is not None:
            for number, marked in self.log.xa_stretches(self.log.oldest(), head.location):
                yield from self.parts(RelayLocation(number, marked.start), RelayLocation(number, marked.end))

    def find_group(self, search: GtidSearch) -> LogGroup | None:
        """Return the event group that `search` looks for; None if the log lacks the group.

        If the group is missing, `search` has its neighbours.

        Raises:
            RelayError: A file of the log is unreadable.
            DataLossError: A file was purged during the search.
            AmbiguousPositionError: The log contains several groups with this GTID.
        """
        self.log.refuse_repeated(search.gtid)
        return self.log.steadily(lambda: RelayGroups(self.log.directory).find(search))

    def find(self, search: GtidSearch) -> Part | None:
        """Return a part with exactly the group that `search` looks for; errors as in `find_group`."""
        group = self.find_group(search)
        return None if group is None else self.part_of(group)

    def part_of(self, group: LogGroup) -> Part:
        """Return a part that contains exactly this group."""
        return next(self.parts(group.before.location, group.after.location))

    def first_since(self, time_s: int, *, accept_gap: bool = False, hint: str) -> LogGroup | None:
        """Return the first group of the log committed at `time_s` or later; None if there is none.

        Args:
            time_s: Time in seconds since 1970.
            accept_gap: Also return a group if earlier groups since `time_s` may be missing.
            hint: Hint of the error without `accept_gap`.

        Raises:
            ConfigError: The time is in the future by this machine's clock.
            DataLossError: The log begins later.
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
                f"{shown_instant(found.after.timestamp)}: transactions committed from {shown_instant(time_s)} on "
                "may be missing.",
                hint=hint,
            )
        return found

    def at_time(self, time_s: int) -> FoundPosition:
        """Return the position before the first group committed at `time_s` or later, or the end of the log.

        Raises:
            ConfigError: The time is in the future.
            DataLossError: The log begins later.
        """
        head = self._head()
        found = self.first_since(time_s, hint="Name a later time, or ask the primary (--direct).")
        return FoundPosition((head if found is None else found.before).position, _next(found))

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Return the position of a place in the primary's binlog; inside an event group, the position before the group.

        Raises:
            DataLossError: The log does not contain that part of the primary's binlog.
        """
        head = self._head()
        around = self.log.steadily(lambda: RelayGroups(self.log.directory).around(place))
        if around is None:
            first = self.log.first_position() or "no transaction"
            raise DataLossError(
                f"the relay log does not contain {place}: it begins after {first} and is at {head.primary}.",
                hint="Ask the primary (--direct).",
            )
        return FoundPosition(around.before.position, _next(around.group), inside=around.inside)

    def after_group(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID.

        Raises:
            AmbiguousPositionError: The log contains several groups with this GTID.
            DataLossError: The log does not contain the GTID.
        """
        head = self._head()
        found = self.find_group(GtidSearch(gtid))
        if found is None:
            raise DataLossError(
                f"{gtid} is not in the relay log, which goes from {self.log.first_position() or 'the beginning'} to "
                f"{head.position}.",
                hint="mariadb-replica explain shows why.",
            )
        end = found.after
        following = self.log.steadily(lambda: RelayGroups(self.log.directory).next_to(end.location))
        return FoundPosition(end.position, _next(following))

    def _head(self) -> RelayHead:
        head = self.log.head()
        if head is None:
            raise DataLossError(
                f"the relay log {self.log.directory} is empty.", hint="Its replica has not written to it yet."
            )
        return head


def _next(group: LogGroup | None) -> NextGroup | None:
    return None if group is None else NextGroup.of(group)


def _purged(name: str) -> DataLossError:
    return DataLossError(
        f"{name} was purged before it was read.",
        hint="The replica's retention removes files by age and size: keep them longer, or start nearer to the end.",
    )
