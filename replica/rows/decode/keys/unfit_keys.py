"""Detection of tables whose rows in a range lack the key by which a snapshot delivered a part of the table.

Without that key, no task can decide which rows lie inside the delivered part. No row is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replica.errors import KeyChangedError
from replica.rows.decode.keys.row_keys import RowKeys
from replica.rows.decode.open_rows.open_ends import WHOLE, OpenEnds
from replica.rows.decode.slots import TableCache
from replica.rows.scan.scan import scan_until
from replica.rows.scan.xa import deliver
from replica.rows.types.types import ValuePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.errors import SchemaError
    from replica.rows.decode.open_rows.frontier import DeliveredKeys
    from replica.rows.scan.scan import Bytes
    from replica.rows.scan.xa import CarriedGroup
    from replica.rows.tables.target import TableResolver
    from replica.schema.known_tables import TableName


def unfit_keys(
    data: Bytes,
    resolver: TableResolver,
    delivered: DeliveredKeys,
    *,
    checksum: bool,
    carried: Sequence[CarriedGroup] = (),
    ends: OpenEnds = WHOLE,
) -> set[TableName]:
    """Return the partly delivered tables whose table maps in the range do not have the snapshot's key.

    The range is given as for `RangeDecoder.decode`. Other faults of the range are ignored: the task that decodes the
    range reports them.
    """
    columns = {table.name: table.columns for table in delivered.open if table.upto is not None}
    if not columns:
        return set()
    tables = TableCache(resolver, None, ValuePolicy())
    found, _ = scan_until(data, checksum=checksum)
    names: set[TableName] = set()
    for part in [found] if ends.committed else deliver(found, carried, unprepared=[]):
        slots = tables.slots(part)
        unfit: dict[int, SchemaError] = {}
        RowKeys(slots, columns.get, unfit)
        for slot in np.unique(part.events["slot"]).tolist():
            if isinstance(unfit.get(slot), KeyChangedError):
                names.add(slots.table(slot).name)
    return names
