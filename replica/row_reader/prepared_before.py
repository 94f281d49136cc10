"""Lookup of XA transactions that were prepared before a reading of a relay log begins."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from replica.errors import DataLossError
from replica.log_reader.in_relay_log import RelayLogReader
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.xa import prepared_at
from replica.rows.scan.xa import XaAction, find_xa_groups

if TYPE_CHECKING:
    from replica.log_reader.part import Part
    from replica.protocol.events.transaction_events import XaId
    from replica.relay_log.log import RelayLog
    from replica.row_reader.reading import Reading


class PreparedBefore:
    """XA transactions that were prepared before `start`, for a reading that began there.

    The log before `start` may be long. It is searched only when the first of these transactions is committed, which is
    rare.
    """

    def __init__(self, log: RelayLog, start: RelayLocation) -> None:
        self._log = log
        self._start = start
        self._seen: set[XaId] = set()
        self._done = False

    def supply(self, reading: Reading, part: Part) -> None:
        """Give the reading the prepared groups that the part commits, before it reads the part.

        Purged groups are not an error here: the reading reports them.
        """
        if self._done:
            return
        for group in find_xa_groups(part.piece.data, checksum=part.piece.checksum):
            if group.action is XaAction.PREPARE:
                self._seen.add(group.xid)
            elif group.xid in self._seen:
                self._seen.remove(group.xid)
            elif group.action is XaAction.COMMIT:
                self._done = True
                with contextlib.suppress(DataLossError):
                    self._carry(reading)
                return

    def _carry(self, reading: Reading) -> None:
        reader = RelayLogReader(self._log)
        for group in prepared_at(self._log, self._start):
            end = RelayLocation(group.location.file, group.bytes.end)
            for part in reader.parts(group.location, end):
                reading.carry(part)
