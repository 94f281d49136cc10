"""Note what a partition does to tables, whatever becomes of its rows: whether it inserts, updates, deletes, and whether
foreign keys counted.

In: the rows events of a partition, of all tables: also those that the mirror does not select, and those of which
nothing is delivered yet. Out: a set of bits a table. A foreign key of another table may cascade what they tell of, and
that is in no binlog.
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
"""Rows of any kind were changed with foreign_key_checks=0: nothing cascaded, and nothing was refused."""

_BITS: Final = np.zeros(r.OPERATIONS, np.int64)
_BITS[[r.OP_DELETE, r.OP_UPDATE, r.OP_INSERT]] = DELETES, UPDATES, INSERTS


class TouchedTables:
    """The bits of each table, as ranges are walked over."""

    def __init__(self) -> None:
        self.bits: dict[TableName, int] = {}

    def add(self, found: Scan, slots: SlotTable) -> None:
        """Take in a range."""
        events = found.events
        unchecked = (events["flags"] & int(RowsFlag.NO_FOREIGN_KEY_CHECKS)) != 0
        of_slots = np.zeros(len(slots.records), np.int64)
        np.bitwise_or.at(of_slots, events["slot"], _BITS[events["op"]] | np.where(unchecked, UNCHECKED, 0))
        for slot in np.flatnonzero(of_slots).tolist():
            name = slots.table(slot).name
            self.bits[name] = self.bits.get(name, 0) | int(of_slots[slot])
