"""Says what can be asked of a log of event groups, the same of each source: files, a relay log, a primary.

A log that lies on disk is a `StoredLog`: it also gives its bytes, range by range, and single groups. Relay logs grow,
and are followed (following.py). A primary is read through a relay log of our own (`replica/primary_reader/`), which
holds as much of its binlog as the question needs.
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
    """Turn times, places and transactions into GTID positions."""

    def at_time(self, time_s: int) -> FoundPosition:
        """Find the position before the first group committed at `time_s` or later; the log's end if there is none."""

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Find the position of a place of the primary's binlog; inside an event group, the position before it."""

    def behind(self, gtid: Gtid) -> FoundPosition:
        """Find the position, in all domains, behind the event group of a GTID."""


class StoredLog(LogReader, Protocol):
    """Do the same with a log on disk, and give its bytes."""

    def find(self, search: GtidSearch) -> Part | None:
        """Find a part that holds nothing but the group that `search` is for; else `search` knows its neighbours."""

    def xa_parts(self) -> Iterator[Part]:
        """Yield all parts that may prepare or end XA transactions, in order; none where the log can be read once."""
