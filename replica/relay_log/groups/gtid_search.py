"""Looks for one GTID among event groups: which of them have it, and what stands in its place where none has.

In: the GTIDs of event groups as columns of numbers, fed in the order of the log. Out: the rows that have the wanted
one; else what tells why it is not there: the GTIDs of its domain before and behind it, and whether another server used
the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replica.protocol.gtid import Gtid

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class GtidSearch:
    """Hold a wanted GTID, and what was met of its domain so far."""

    gtid: Gtid
    before: Gtid | None = None
    """The GTID of its domain with the next lower number that was met."""
    after: Gtid | None = None
    """The GTID with the next higher one."""
    other: Gtid | None = None
    """The GTID with the same number, of another server."""

    def look(
        self, domains: NDArray[np.int64], servers: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.intp]:
        """Return the rows of the wanted GTID, in order; `sequences` hold the 64 bits of the numbers."""
        mine = np.flatnonzero(domains == self.gtid.domain_id)
        if not len(mine):
            return mine
        sequence, server = sequences[mine].view(np.uint64), servers[mine]
        wanted = np.uint64(self.gtid.seq_no)
        same = sequence == wanted
        for met, nearest in ((sequence < wanted, np.argmax), (sequence > wanted, np.argmin)):
            if met.any():
                row = int(nearest(sequence[met]))
                self._neighbour(self._gtid(server[met][row], sequence[met][row]))
        others = server[same & (server != self.gtid.server_id)]
        if len(others):
            self.other = self._gtid(others[-1], wanted)
        return mine[same & (server == self.gtid.server_id)]

    def _neighbour(self, gtid: Gtid) -> None:
        if gtid.seq_no < self.gtid.seq_no and (self.before is None or gtid.seq_no > self.before.seq_no):
            self.before = gtid
        elif gtid.seq_no > self.gtid.seq_no and (self.after is None or gtid.seq_no < self.after.seq_no):
            self.after = gtid

    def _gtid(self, server: np.int64, sequence: np.uint64) -> Gtid:
        return Gtid(self.gtid.domain_id, int(server), int(sequence))
