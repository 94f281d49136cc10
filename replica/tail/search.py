"""One GTID among the parts of a log: its bytes, or what stands in its place.

In: parts in the order of the log. Out: where the event group lies; else what tells why it is not there: the GTIDs of
its domain before and behind it, and whether another server used the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replica.protocol.gtid import Gtid
from replica.rows.decode.batch import Groups
from replica.rows.scan.scan import scan

if TYPE_CHECKING:
    from replica.dump.reading import Part


@dataclass(slots=True)
class Search:
    """A search for one GTID. `found`: a part that holds the event group and nothing else; of several with the GTID, the
    last one fed.
    """

    gtid: Gtid
    found: Part | None = None
    before: Gtid | None = None
    """Of its domain, with the next lower number that was met."""
    after: Gtid | None = None
    """With the next higher one."""
    other: Gtid | None = None
    """With the same number, of another server."""
    last: Gtid | None = None
    """Of its domain, the last one that was met."""

    def feed(self, part: Part) -> bool:
        """Look at a part; return whether it holds the group."""
        if not part.piece.whole:
            return False
        found = scan(part.piece.data, checksum=part.piece.checksum)
        groups = Groups(found.groups, found.expansion)
        mine = np.flatnonzero(groups.domain == self.gtid.domain_id)
        if not len(mine):
            return False
        sequence, server = groups.seq_no[mine].astype(np.uint64), groups.server_id[mine]
        wanted = np.uint64(self.gtid.seq_no)
        hits = mine[(sequence == wanted) & (server == self.gtid.server_id)]
        self.last = self._gtid(groups, int(mine[-1]))
        below, above = sequence < wanted, sequence > wanted
        if below.any():
            self._neighbour(self._gtid(groups, int(mine[below][np.argmax(sequence[below])])))
        if above.any():
            self._neighbour(self._gtid(groups, int(mine[above][np.argmin(sequence[above])])))
        others = mine[(sequence == wanted) & (server != self.gtid.server_id)]
        if len(others):
            self.other = self._gtid(groups, int(others[-1]))
        if len(hits):
            start, end = int(groups.start[hits[-1]]), int(groups.end[hits[-1]])
            piece = part.piece._replace(data=part.piece.data[start:end], offset=part.piece.offset + start)
            self.found = part._replace(piece=piece)
        return bool(len(hits))

    def _neighbour(self, gtid: Gtid) -> None:
        if gtid.seq_no < self.gtid.seq_no and (self.before is None or gtid.seq_no > self.before.seq_no):
            self.before = gtid
        elif gtid.seq_no > self.gtid.seq_no and (self.after is None or gtid.seq_no < self.after.seq_no):
            self.after = gtid

    @staticmethod
    def _gtid(groups: Groups, at: int) -> Gtid:
        return Gtid(int(groups.domain[at]), int(groups.server_id[at]), int(groups.seq_no[at]) % (1 << 64))
