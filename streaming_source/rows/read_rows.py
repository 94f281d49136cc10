"""Snapshot rows as a batch of row changes: inserts of one transaction, the same in all replays.

`read_rows` takes the decoder's batches and the transaction at which the rows hold. It returns the same batches with
that transaction for each row. The row's number, above all ordinals of changes, is its ordinal, and no row is the last
of its transaction. So (GTID, ordinal) stays unique, and `_sequence` sorts a snapshot row after all changes up to its
position and before later ones. With several replication domains it sorts before all changes (`ReadRows.lowest`).
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
"""Ordinal of the first snapshot row. No transaction has so many row changes, and 12 digits have room for ten times
10^10 more rows.
"""


def read_rows(decoded: Iterable[ChangeBatch], read: ReadRows) -> Iterator[ChangeBatch]:
    """Yield the batches of one range as snapshot rows."""
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
    # Records have signed 64 bits.
    sequence = read.seq_no - (1 << 64) if read.seq_no >= 1 << 63 else read.seq_no
    values = {"domain": read.domain, "server": read.server_id, "sequence": sequence, "timestamp": read.timestamp}
    for name, value in {**values, "xid": 0, "thread": 0}.items():
        records[name] = value
    return Groups(records)
