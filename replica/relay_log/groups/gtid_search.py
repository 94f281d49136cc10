"""Search for one GTID among event groups, and collect its neighbours if no group has it.

`GtidSearch.look` takes the GTIDs of groups as columns, in log order, and returns the rows with the wanted GTID. The
attributes explain a missing GTID: the nearest GTIDs of its domain, and another server's GTID with the same number.
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
    """Search for one GTID, with the neighbours found so far."""

    gtid: Gtid
    before: Gtid | None = None
    """GTID of the domain with the nearest lower number."""
    after: Gtid | None = None
    """GTID of the domain with the nearest higher number."""
    other: Gtid | None = None
    """GTID of another server with the same number."""

    def look(
        self, domains: NDArray[np.int64], servers: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.intp]:
        """Return the rows with the wanted GTID, in order; `sequences` hold the unsigned numbers as int64."""
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
