"""The output of the decoder: the groups of a range, and batches of row changes that point into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.rows.scan import records as r

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from replica.native.record import Records
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.expand import Expansion


class TableName(NamedTuple):
    database: str
    table: str


class Groups:
    """The event groups of a range in stream order: one int64 array a field, views of the scan's records.

    `expansion`: of a range that was written out for the scan; `start` and `end` are offsets in the range itself.
    """

    def __init__(self, records: Records, expansion: Expansion | None = None) -> None:
        self._records = records
        self.domain = records["domain"]
        self.server_id = records["server"]
        self.seq_no = records["sequence"]
        self.commit_ts = records["timestamp"]  # seconds since 1970, of the event that ends the group
        self.flags = records["flags"]
        self.commit_id = records["commit_id"]
        self.xid = records["xid"]  # 0 where the group does not end with XID
        self.thread_id = records["thread"]  # 0 where the server does not log it (before 11.5)
        self.start = records["start"]  # offsets in the range
        self.end = records["end"]
        if expansion is not None:
            self.start, self.end = expansion.origins(self.start), expansion.origins(self.end)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def sequence_numbers(self) -> npt.NDArray[np.uint64]:
        """The `seq_no` as what they are: from 2^63 on, they stand as negative numbers there."""
        return self.seq_no.view(np.uint64)

    @property
    def records(self) -> Records:
        """All fields: GroupRecords."""
        return self._records


@dataclass(slots=True)
class ChangeBatch:
    """Row changes in stream order. Arrays have one entry a row; the Arrow arrays may be reused by the next batch.

    `op`: 0 insert, 1 update, 2 delete; in the flat shape 0 insert, 1 update_preimage, 2 update_postimage, 3 delete,
    where both rows of an update have the same ordinal. Typed columns are NULL where an image does not hold them.

    `absent_before`, `absent_after` and, in the flat shape, `absent` tell such a NULL from the column's own: lists of
    output column names (VARIANT: of all shown columns of the table) that the row's image left out, as
    binlog_row_image=MINIMAL does. NULL where the image is whole or there is none; the array itself is None where that
    holds for every row. A column that the table does not have at all is in no list.

    `history`: for rows of system-versioned tables whether the row is a closed version (its `row_end` lies before the
    end of time) and not the current one; of the after image, for a delete of the before image. NULL for other tables
    and where the image does not tell; None where no table of the range is versioned.

    `kept`: the rows that lie in what is delivered of their tables; the others are to be dropped. None: all of them.
    """

    rows: int
    op: npt.NDArray[np.int8]
    table: npt.NDArray[np.int32]  # index into `tables`
    group: npt.NDArray[np.int32]  # index into `groups`
    ordinal: npt.NDArray[np.int64]  # of the row change among all of its transaction, from 0, wanted or not
    last: npt.NDArray[np.bool_]  # the last delivered row of its transaction
    tables: list[TableName]
    groups: Groups
    before: list[pa.Array] = field(default_factory=list)  # envelope: one array a column; variant: one struct array
    after: list[pa.Array] = field(default_factory=list)
    columns: list[pa.Array] = field(default_factory=list)  # flat
    sql: pa.Array | None = None  # text of the statement (ANNOTATE_ROWS), where asked for
    contexts: list[str] | None = None  # of statements: what the meaning of each depends on besides its text
    absent_before: pa.ListArray | None = None  # list<string> a row; envelope and variant
    absent_after: pa.ListArray | None = None
    absent: pa.ListArray | None = None  # flat
    history: pa.BooleanArray | None = None
    event: npt.NDArray[np.int32] | None = None  # per row the number of its rows event in `events`
    events: Records | None = None  # the range's rows events, EventRecords
    slots: SlotTable | None = None  # the compiled tables, by `slot` of EventRecord
    kept: npt.NDArray[np.bool_] | None = None

    @property
    def before_valid(self) -> npt.NDArray[np.bool_]:
        """Rows that have a before image (envelope and variant)."""
        return np.not_equal(self.op, r.OP_INSERT)

    @property
    def after_valid(self) -> npt.NDArray[np.bool_]:
        return np.not_equal(self.op, r.OP_DELETE)
