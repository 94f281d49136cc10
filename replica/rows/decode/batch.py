"""Output of the decoder: the groups of a range, and batches of row changes that refer to them."""

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
    """The event groups of a range in stream order: one int64 array per field, each a view of the scan's records.

    With `expansion`, the range was rewritten for the scan; `start` and `end` are still offsets in the original range.
    """

    def __init__(self, records: Records, expansion: Expansion | None = None) -> None:
        self._records = records
        self.domain = records["domain"]
        self.server_id = records["server"]
        self.seq_no = records["sequence"]
        self.commit_ts = records["timestamp"]  # seconds since 1970, of the event that ends the group
        self.flags = records["flags"]
        self.commit_id = records["commit_id"]
        self.xid = records["xid"]  # 0 if the group does not end with XID
        self.thread_id = records["thread"]  # 0 if the server does not log it (before 11.5)
        self.start = records["start"]  # offsets in the range
        self.end = records["end"]
        if expansion is not None:
            self.start, self.end = expansion.origins(self.start), expansion.origins(self.end)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def sequence_numbers(self) -> npt.NDArray[np.uint64]:
        """The `seq_no` as uint64. As int64, numbers from 2^63 on are negative."""
        return self.seq_no.view(np.uint64)

    @property
    def records(self) -> Records:
        """The GroupRecords with all fields."""
        return self._records


@dataclass(slots=True)
class ChangeBatch:
    """Row changes in stream order, as arrays with one entry per row.

    The next batch may reuse the memory of the Arrow arrays. Typed columns are NULL if the image lacks the column.

    Attributes:
        op: 0 insert, 1 update, 2 delete. In the flat shape: 0 insert, 1 update_preimage, 2 update_postimage, 3 delete;
            both rows of an update have the same ordinal.
        absent_before: Lists of output column names that the row's before image left out, as binlog_row_image=MINIMAL
            does. For VARIANT, the names are those of the shown columns. A list distinguishes an absent column from a
            NULL value. NULL if the image is whole or missing; None instead of the array if every image is. A column
            that the table does not have is in no list.
        absent_after: The same for after images.
        absent: The same for the flat shape.
        history: For rows of system-versioned tables, True if the row is a closed version: its `row_end` is before the
            end of time. The after image decides, or the before image of a delete. NULL for other tables and if the
            image does not show it; None if no table of the range is versioned.
        kept: The rows inside the delivered part of their tables; the caller must drop other rows. None keeps all rows.
    """

    rows: int
    op: npt.NDArray[np.int8]
    table: npt.NDArray[np.int32]  # index into `tables`
    group: npt.NDArray[np.int32]  # index into `groups`
    ordinal: npt.NDArray[np.int64]  # number of the row in its transaction, from 0, counting unselected rows too
    last: npt.NDArray[np.bool_]  # the last delivered row of its transaction
    tables: list[TableName]
    groups: Groups
    before: list[pa.Array] = field(default_factory=list)  # envelope: one array per column; variant: one struct array
    after: list[pa.Array] = field(default_factory=list)
    columns: list[pa.Array] = field(default_factory=list)  # flat
    sql: pa.Array | None = None  # text of the statement (ANNOTATE_ROWS), if requested
    contexts: list[str] | None = None  # session settings that the meaning of each statement depends on
    absent_before: pa.ListArray | None = None  # list<string> per row; envelope and variant
    absent_after: pa.ListArray | None = None
    absent: pa.ListArray | None = None  # flat
    history: pa.BooleanArray | None = None
    event: npt.NDArray[np.int32] | None = None  # per row, the number of its rows event in `events`
    events: Records | None = None  # the range's rows events, EventRecords
    slots: SlotTable | None = None  # the compiled tables, by `slot` of EventRecord
    kept: npt.NDArray[np.bool_] | None = None

    @property
    def before_valid(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that have a before image (envelope and variant)."""
        return np.not_equal(self.op, r.OP_INSERT)

    @property
    def after_valid(self) -> npt.NDArray[np.bool_]:
        return np.not_equal(self.op, r.OP_DELETE)
