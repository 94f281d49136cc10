"""Common interface of event group logs: files, a relay log, or a primary.

`LogReader` answers searches for positions. A log on disk is a `StoredLog`, which also returns its bytes and single
groups. A growing relay log is followed with following.py. A primary is read through a temporary relay log
(`replica/primary_reader/`), which receives as much of the binlog as the search needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.log_reader.found import FoundPosition
    from replica.log_reader.part import Part
    from replica.protocol.gtid import BinlogPosition, Gtid
    from replica.relay_log.groups.gtid_search import GtidSearch


class LogReader(Protocol):
    """Interface that maps times, places and transactions to GTID positions."""

    def at_time(self, time_s: int) -> FoundPosition:
        """Return the position before the first group committed at `time_s` or later, or the end of the log."""

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Return the position of a place in the primary's binlog; inside an event group, the position before the
        group.
        """

    def behind(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID."""


class StoredLog(LogReader, Protocol):
    """Interface of a log on disk, which also returns its bytes."""

    def find(self, search: GtidSearch) -> Part | None:
        """Return a part with exactly the group that `search` looks for; otherwise `search` has its neighbours."""

    def xa_parts(self) -> Iterator[Part]:
        """Yield all parts that may prepare or end XA transactions, in order; none if the log can be read only once."""
