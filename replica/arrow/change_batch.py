"""Conversion of a decoded batch of one table to a self-contained Arrow RecordBatch.

`change_record_batch` takes a `ChangeBatch` of the shape `envelope`. The RecordBatch has the columns of `FIELDS`, with
the images as STRUCTs of the table's columns. It owns its memory if the decoder does not reuse buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.rows.types.arrow_arrays import array_of, array_of_values, repeated, validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.types.types import OutputColumn

OPERATIONS: Final = array_of_values(["insert", "update", "delete"], pa.string())
"""Operations by the decoder's number."""
NAMES: Final = pa.list_(pa.string())
_MICROSECONDS: Final = 1_000_000


class ChangeColumn(NamedTuple):
    """One column of the RecordBatches; `kind` is None for images, whose type follows from the table."""

    name: str
    kind: pa.DataType | None
    nullable: bool
    meaning: str


FIELDS: Final = (
    ChangeColumn("op", pa.string(), False, "`insert`, `update` or `delete`"),
    ChangeColumn("gtid", pa.string(), False, "the transaction: `0-1-4711`; in MySQL's files `uuid:number`"),
    ChangeColumn("domain_id", pa.uint32(), False, "its replication domain; 0 in MySQL's files"),
    ChangeColumn("server_id", pa.uint32(), False, "the server that logged it"),
    ChangeColumn("sequence_number", pa.uint64(), False, "its number in the domain; grows along the log"),
    ChangeColumn("commit_time", pa.timestamp("us", tz="UTC"), False, "when it was committed, to the second"),
    ChangeColumn("ordinal", pa.int64(), False, "of the row change among all of its transaction, from 0, of all tables"),
    ChangeColumn("last", pa.bool_(), False, "whether it is the transaction's last one of this table"),
    ChangeColumn("before", None, True, "the row before the change, a column of the table a field; NULL for `insert`"),
    ChangeColumn("after", None, True, "the row after the change; NULL for `delete`"),
    ChangeColumn("absent_before", NAMES, True, "columns left out of `before` (binlog_row_image=MINIMAL); NULL: none"),
    ChangeColumn("absent_after", NAMES, True, "columns left out of `after`, and NULL there; NULL: none"),
    ChangeColumn(
        "history", pa.bool_(), True, "for system-versioned tables, whether the row is a closed version; else NULL"
    ),
)


def change_schema(columns: Sequence[OutputColumn]) -> pa.Schema:
    """Return the schema of the RecordBatches of a table with these columns."""
    image = pa.struct([pa.field(column.name, column.arrow) for column in columns])
    return pa.schema([pa.field(field.name, field.kind or image, field.nullable) for field in FIELDS])


def change_record_batch(changes: ChangeBatch, schema: pa.Schema, gtids: pa.Array | None) -> pa.RecordBatch:
    """Make the RecordBatch of `schema` from a decoded batch.

    Args:
        changes: The decoded batch.
        schema: The result of `change_schema`.
        gtids: One text per group, for GTIDs that are not three numbers; None for MariaDB's.
    """
    groups, met = changes.groups, np.unique(changes.group)
    row_of_met = np.searchsorted(met, changes.group)
    domain, server = groups.domain[met].astype(np.uint32), groups.server_id[met].astype(np.uint32)
    number = groups.sequence_numbers[met]
    if gtids is None:
        parts = [array_of(part).cast(pa.string()) for part in (domain, server, number)]
        texts = pc.binary_join_element_wise(*parts, repeated("-", len(met)))
    else:
        texts = gtids.take(array_of(met)).cast(pa.string())
    moment = array_of(groups.commit_ts[changes.group] * _MICROSECONDS).view(schema.field("commit_time").type)
    nothing = pa.nulls(changes.rows, NAMES)
    columns = {
        "op": OPERATIONS.take(array_of(changes.op)),
        "gtid": texts.take(array_of(row_of_met)),
        "domain_id": array_of(domain[row_of_met]),
        "server_id": array_of(server[row_of_met]),
        "sequence_number": array_of(number[row_of_met]),
        "commit_time": moment,
        "ordinal": array_of(changes.ordinal),
        "last": array_of(changes.last),
        "before": _image(changes.before, schema.field("before").type, changes.before_valid),
        "after": _image(changes.after, schema.field("after").type, changes.after_valid),
        "absent_before": nothing if changes.absent_before is None else changes.absent_before.cast(NAMES),
        "absent_after": nothing if changes.absent_after is None else changes.absent_after.cast(NAMES),
        "history": pa.nulls(changes.rows, pa.bool_()) if changes.history is None else changes.history,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _image(arrays: Sequence[pa.Array], kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.StructArray.from_buffers(kind, len(valid), [validity(valid)], children=list(arrays))
