"""Record which tables a partition inserts into, updates or deletes from, and whether foreign key checks were on.

In: the row events of a partition, for all tables. They include tables that the mirror does not select, and rows that
are not delivered yet. Out: a set of bits for each table. A foreign key of another table may cascade these changes, and
no binlog records a cascade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.protocol.constants import RowsFlag
from replica.rows.scan import records as r

if TYPE_CHECKING:
    from replica.rows.decode.batch import TableName
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan

DELETES: Final = 1
UPDATES: Final = 2
INSERTS: Final = 4
UNCHECKED: Final = 8
"""Bit for rows that were changed with foreign_key_checks=0, so that nothing cascaded and nothing was refused."""

_BITS: Final = np.zeros(r.OPERATIONS, np.int64)
_BITS[[r.OP_DELETE, r.OP_UPDATE, r.OP_INSERT]] = DELETES, UPDATES, INSERTS


class TouchedTables:
    """Bits of each table in the ranges of a partition."""

    def __init__(self) -> None:
        self.bits: dict[TableName, int] = {}

    def add(self, found: Scan, slots: SlotTable) -> None:
        """Add the row events of a range."""
        events = found.events
        unchecked = (events["flags"] & int(RowsFlag.NO_FOREIGN_KEY_CHECKS)) != 0
        of_slots = np.zeros(len(slots.records), np.int64)
        np.bitwise_or.at(of_slots, events["slot"], _BITS[events["op"]] | np.where(unchecked, UNCHECKED, 0))
        for slot in np.flatnonzero(of_slots).tolist():
            name = slots.table(slot).name
            self.bits[name] = self.bits.get(name, 0) | int(of_slots[slot])
