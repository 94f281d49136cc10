"""A decoded batch -> the RecordBatch Spark gets: the row images, and around them what is known of their transactions.

In: a `ChangeBatch` (images as Arrow arrays, the rest as numpy columns that point into its groups). Out: a RecordBatch
of exactly the query's Arrow schema, which may name a part of the columns. One function a column; the tables at the end
say which. What is the same for all rows of a transaction is computed per transaction and taken by the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import SchemaError
from streaming_source.rows.group_columns import take, take_positions
from streaming_source.rows.row_texts import gtid_texts, sequence_texts

if TYPE_CHECKING:
    from replica.rows.decode.batch import ChangeBatch, Groups
    from streaming_source.rows.partition import ReadRows

ENVELOPE_OPS = pa.array(["insert", "update", "delete", "ddl"])
OP_DDL = 3  # beside the decoder's
READ = "read"
"""The operation of rows that were read from their table, in the envelope; the flat shape has Spark's four kinds."""
FLAT_OPS = pa.array(["insert", "update_preimage", "update_postimage", "delete"])
_MICROSECONDS = 1_000_000

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]


class RangeFacts:
    """All that the rows of a range share: the server's name, the primary's binlog file ('' if unknown), the bytes, and
    what rows that were read from their table hold behind.
    """

    def __init__(self, server: str, file: str, data: memoryview, read: ReadRows | None = None) -> None:
        self.server = server
        self.file = file
        self.read = read
        self._bytes = np.frombuffer(data, np.uint8)

    def positions(self, groups: Groups, group: GroupIndex) -> Ints:
        """Return, per row, where its transaction begins in the primary's file: modulo 4 GiB."""
        return take_positions(self._bytes, groups.start, group)


class ChangeRows:
    """One batch on its way to Spark."""

    def __init__(self, changes: ChangeBatch, facts: RangeFacts) -> None:
        self.changes = changes
        self.facts = facts

    def record_batch(self, schema: pa.Schema, columns: Mapping[str, Builder]) -> pa.RecordBatch:
        """Make the columns of `schema` by ENVELOPE or FLAT; those FLAT does not name are the table's, in order."""
        images = iter(self.changes.columns)
        arrays = [columns[f.name](self, f.type) if f.name in columns else next(images) for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def taken(self, per_group: Ints, factor: int = 1) -> pa.Array:
        """Return a column of the groups, as a column of the rows."""
        return pa.array(take(per_group, self.changes.group, factor)[0])

    def taken_or_null(self, per_group: Ints) -> pa.Array:
        """Return the same, with NULL where 0 stands for what the server did not log."""
        values, told = take(per_group, self.changes.group)
        if not told:
            return pa.nulls(len(values), pa.int64())
        return pa.array(values) if told == len(values) else pa.array(values, mask=values == 0)

    def constant(self, text: str) -> pa.Array:
        rows = self.changes.rows
        return _repeated(text, 1 << rows.bit_length())[:rows] if text else pa.nulls(rows, pa.string())


@lru_cache(maxsize=16)
def _repeated(text: str, times: int) -> pa.Array:
    """Return an array of one value, made once for all batches; some megabytes altogether."""
    return pa.repeat(text, times)


Builder = Callable[[ChangeRows, pa.DataType], pa.Array]


def _operation(texts: pa.Array, read: str) -> Builder:
    def build(rows: ChangeRows, _: pa.DataType) -> pa.Array:
        if rows.facts.read is not None:
            return rows.constant(read)
        op = rows.changes.op
        if len(op) and (op == op[0]).all():
            return rows.constant(texts[int(op[0])].as_py())
        return texts.take(pa.array(op))

    return build


def _name(part: int) -> Builder:
    def build(rows: ChangeRows, _: pa.DataType) -> pa.Array:
        names = [name[part] or None for name in rows.changes.tables]
        if len(names) == 1:
            return rows.constant(names[0] or "")
        return pa.array(names, pa.string()).take(pa.array(rows.changes.table))

    return build


def _before(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    return _image(rows.changes.before, kind, rows.changes.before_valid)


def _after(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    return _image(rows.changes.after, kind, rows.changes.after_valid)


def _image(arrays: list[pa.Array], kind: pa.DataType, valid: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    if not arrays:  # a statement has no images
        return pa.nulls(len(valid), kind)
    if len(arrays) == 1 and arrays[0].type == kind:
        return arrays[0]  # VARIANT: the decoder makes the struct itself
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StructArray.from_buffers(kind, len(valid), [bits], children=arrays)


def _gtid(rows: ChangeRows, _: pa.DataType) -> pa.Array:
    groups = rows.changes.groups
    return gtid_texts(groups.domain, groups.server_id, groups.seq_no, rows.changes.group)


def _sequence_number(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    """Return the sequence numbers as the query's schema has them.

    Raises:
        SchemaError: a number that no BIGINT can hold.
    """
    groups, group = rows.changes.groups, rows.changes.group
    numbers = take(groups.seq_no, group)[0]
    if pa.types.is_decimal(kind):
        wide = np.zeros((len(numbers), 2), np.int64)  # the lower half of 128 bits, and the upper
        wide[:, 0] = numbers
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(wide)])
    if len(numbers) and int(numbers.min()) < 0:
        gtid = gtid_texts(groups.domain, groups.server_id, groups.seq_no, group)[int(numbers.argmin())]
        raise SchemaError(
            f"the sequence number of transaction {gtid} is 2^63 or more, and the column for it is a BIGINT.",
            hint="Set sequenceNumbers=decimal: then sequence_number and _commit_version are DECIMAL(20,0). The texts "
            "gtid and _sequence hold any number. In the flat shape the column can be left out with .schema(...).",
        )
    return pa.array(numbers)


def _sequence(rows: ChangeRows, _: pa.DataType) -> pa.Array:
    numbers, read = rows.changes.groups.seq_no, rows.facts.read
    if read is not None and read.lowest:
        numbers = np.zeros(len(numbers), np.int64)
    return sequence_texts(numbers, rows.changes.group, rows.changes.ordinal)


def _commit_timestamp(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    if rows.facts.read is not None and not rows.facts.read.timestamp:
        return pa.nulls(rows.changes.rows, kind)
    return rows.taken(rows.changes.groups.commit_ts, _MICROSECONDS).view(kind)


def _position(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    if rows.facts.read is not None:  # no transaction has written them at a place
        return pa.nulls(rows.changes.rows, kind)
    return pa.array(rows.facts.positions(rows.changes.groups, rows.changes.group))


def _absent(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    """Return both sides' absent columns; the STRUCT itself is NULL where both images are whole."""
    sides = rows.changes.absent_before, rows.changes.absent_after
    if sides[0] is None and sides[1] is None:
        return pa.nulls(rows.changes.rows, kind)
    children = [
        pa.nulls(rows.changes.rows, field.type) if side is None else side.cast(field.type)
        for field, side in zip(kind, sides, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pc.and_(*(c.is_null() for c in children)))


def _or_null(column: Callable[[ChangeBatch], pa.Array | None]) -> Builder:
    """Make a column that batches without anything to tell there do not have."""

    def build(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
        array = column(rows.changes)
        return pa.nulls(rows.changes.rows, kind) if array is None else array.cast(kind)

    return build


def _struct(builders: Mapping[str, Builder]) -> Builder:
    def build(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
        children = [builders[field.name](rows, field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    return build


TRANSACTION: Mapping[str, Builder] = {
    "gtid": _gtid,
    "domain_id": lambda rows, _: rows.taken(rows.changes.groups.domain),
    "server_id": lambda rows, _: rows.taken(rows.changes.groups.server_id),
    "sequence_number": _sequence_number,
    "commit_timestamp": _commit_timestamp,
    "xid": lambda rows, _: rows.taken_or_null(rows.changes.groups.xid),
    "ordinal": lambda rows, _: pa.array(rows.changes.ordinal),
    "is_last": lambda rows, _: pa.array(rows.changes.last),
}
SOURCE: Mapping[str, Builder] = {
    "server": lambda rows, _: rows.constant(rows.facts.server),
    "file": lambda rows, _: rows.constant(rows.facts.file),
    "position": _position,
    "thread_id": lambda rows, _: rows.taken_or_null(rows.changes.groups.thread_id),
    "sql": _or_null(lambda changes: changes.sql),
}
ENVELOPE: Mapping[str, Builder] = {
    "op": _operation(ENVELOPE_OPS, READ),
    "database": _name(0),
    "table": _name(1),
    "before": _before,
    "after": _after,
    "transaction": _struct(TRANSACTION),
    "source": _struct(SOURCE),
    "absent": _absent,
    "history": _or_null(lambda changes: changes.history),
}
FLAT: Mapping[str, Builder] = {
    "_change_type": _operation(FLAT_OPS, "insert"),
    "_commit_version": _sequence_number,
    "_commit_timestamp": _commit_timestamp,
    "_gtid": _gtid,
    "_sequence": _sequence,
    "_absent": _or_null(lambda changes: changes.absent),
    "_history": _or_null(lambda changes: changes.history),
}
