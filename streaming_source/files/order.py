"""The order of GTIDs along binlog files: the option gtidStrictMode, by mariadbd's rule.

In: the event groups of one range after the other, in stream order, over all files of a read. Refused: a group whose
sequence number is not above the last one of its domain, before any row is read. MySQL's files have other GTIDs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.protocol.gtid import Gtid
from replica.relay_log.groups.repeated import out_of_order
from replica.rows.decode.batch import Groups

if TYPE_CHECKING:
    from replica.rows.scan.scan import Scan


class FileOrder:
    """The order so far. `strict`: gtidStrictMode."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._last: dict[int, Gtid] = {}

    def follow(self, found: Scan, path: str) -> None:
        """Check the next range.

        Raises:
            OutOfOrderGtidError: one of its groups goes back.
        """
        if not self._strict or found.is_mysql:
            return
        groups = Groups(found.groups, found.expansion)
        rows = zip(groups.domain.tolist(), groups.server_id.tolist(), groups.seq_no.tolist(), strict=True)
        for domain, server, signed in rows:
            gtid = Gtid(domain, server, signed % (1 << 64))
            last = self._last.get(domain)
            if last is not None and gtid.seq_no <= last.seq_no:
                raise out_of_order(gtid, last, f"in {path}")
            self._last[domain] = gtid
