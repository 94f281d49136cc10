"""Rows of a table itself as a batch of row changes: inserts of one transaction, the same in all replays.

In: what the decoder makes of row images that were read, and the transaction that they hold behind. Out: the same
batches with that transaction for each row, the row's number as its ordinal, above all ordinals of changes, and no last
row: so (GTID, ordinal) stays unique, and `_sequence` puts a row that was read behind all changes up to its position,
before those that follow; with several replication domains before all changes (`ReadRows.lowest`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.rows.decode.batch import Groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replica.rows.decode.batch import ChangeBatch
    from streaming_source.rows.partition import ReadRows

FIRST_ORDINAL: Final = 900_000_000_000
"""The ordinal of the first row that is read: no transaction has so many row changes, and 12 digits hold ten times
10^10 rows more."""


def read_rows(decoded: Iterable[ChangeBatch], read: ReadRows) -> Iterator[ChangeBatch]:
    """Yield the batches of one range as rows that were read."""
    groups: Groups | None = None
    for changes in decoded:
        groups = groups or _groups(changes.groups, read)
        yield replace(
            changes,
            groups=groups,
            ordinal=changes.ordinal + (FIRST_ORDINAL + read.first),
            last=np.zeros(changes.rows, np.bool_),
        )


def _groups(groups: Groups, read: ReadRows) -> Groups:
    records = groups.records.copy()
    # Records have 64 bits without a sign of their own for it.
    sequence = read.seq_no - (1 << 64) if read.seq_no >= 1 << 63 else read.seq_no
    values = {"domain": read.domain, "server": read.server_id, "sequence": sequence, "timestamp": read.timestamp}
    for name, value in {**values, "xid": 0, "thread": 0}.items():
        records[name] = value
    return Groups(records)
