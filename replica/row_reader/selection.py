"""Selection of transactions by GTID position and by time.

GTIDs bound as in mariadb-binlog: the start is exclusive, because the reader already has it, and the stop is inclusive.
Each GTID counts in its own domain, by sequence number. Domains without a start are shown from the beginning. With a
stop, only the domains that it names are shown. Times are commit times; the start is inclusive, the stop exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from replica.protocol.gtid import GtidPosition

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.decode.batch import Groups


@dataclass(slots=True)
class ChosenTransactions:
    """The bounds. Times are seconds since 1970."""

    start: GtidPosition = field(default_factory=GtidPosition)
    stop: GtidPosition = field(default_factory=GtidPosition)
    start_time: int | None = None
    stop_time: int | None = None
    _reached: set[int] = field(default_factory=set)

    @property
    def everything(self) -> bool:
        return not self.start and not self.stop and self.start_time is None and self.stop_time is None

    @property
    def finished(self) -> bool:
        """Whether no later transaction can be selected: every domain of `stop` has reached it."""
        return bool(self.stop) and self._reached.issuperset(gtid.domain_id for gtid in self.stop)

    def shown(self, groups: Groups) -> npt.NDArray[np.bool_]:
        """Mark the selected groups; the caller must pass groups in the order of the log."""
        shown = np.ones(len(groups), np.bool_)
        sequence = groups.seq_no.astype(np.uint64)  # as int64, numbers from 2^63 on are negative
        for gtid in self.start:
            shown &= (groups.domain != gtid.domain_id) | (sequence > np.uint64(gtid.seq_no))
        if self.stop:
            within = np.zeros(len(groups), np.bool_)
            for gtid in self.stop:
                of_domain = groups.domain == gtid.domain_id
                within |= of_domain & (sequence <= np.uint64(gtid.seq_no))
                if (of_domain & (sequence >= np.uint64(gtid.seq_no))).any():
                    self._reached.add(gtid.domain_id)
            shown &= within
        if self.start_time is not None:
            shown &= groups.commit_ts >= self.start_time
        if self.stop_time is not None:
            shown &= groups.commit_ts < self.stop_time
        return shown
