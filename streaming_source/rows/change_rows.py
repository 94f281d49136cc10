"""RecordBatches for Spark from decoded batches: the row images, and the metadata of their transactions.

`ChangeRows.record_batch` takes a `ChangeBatch` (images as Arrow arrays, the rest as numpy columns that index its
groups). It returns a RecordBatch with exactly the query's Arrow schema, which may have a subset of the columns. One
function makes one column, and the tables at the end of the first part list these functions. Values that are the same
for all rows of a transaction are computed once for each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import ProtocolError, SchemaError
from replica.native.arrays import address
from replica.rows.types.arrow_arrays import array_of, array_of_values, repeated, validity
from streaming_source.rows.kernel_group_columns import take_numbers
from streaming_source.rows.kernel_row_texts import LABEL_BYTES, SLACK, write_gtids, write_labels, write_sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.rows.decode.batch import ChangeBatch, Groups
    from streaming_source.rows.partition import ReadRows
# The functions take sequence number, domain and server per transaction, and transaction, ordinal and operation per
# row. They return string arrays in memory that the next batch overwrites. Digits are made at most once a transaction.
# `_sequence` is `{sequence number:020d}.{ordinal:012d}`, 33 bytes of fixed width that sort as text in the order of the
# row changes of one domain.


SEQUENCE_WIDTH: Final = 33
_ORDINAL_DIGITS: Final = 12
MAX_ORDINAL: Final = 10**_ORDINAL_DIGITS - 1  # a transaction of more rows would be some 10 TB of binlog
GTID_WIDTH: Final = 42  # 10 digits, 10 digits, 20 digits and two dashes

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]
Codes = np.ndarray[Any, np.dtype[np.int8]]


class Labels:
    """Set of words of at most 16 bytes, from which each row has one."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        encoded = [label.encode() for label in labels]
        if any(len(label) > LABEL_BYTES for label in encoded):
            raise ValueError(labels)
        self._labels = np.frombuffer(b"".join(label.ljust(LABEL_BYTES, b" ") for label in encoded), np.uint8)
        self._lengths = np.array([len(label) for label in encoded], np.int64)

    def texts(self, codes: Codes, memory: RowMemory) -> pa.Array:
        """Return the word of each row.

        Args:
            codes: for each row, the number of its word.
            memory: owner of the returned array. The next batch overwrites it.
        """
        rows = len(codes)
        codes = np.ascontiguousarray(codes, np.int8)
        out = memory.bytes("words", rows * LABEL_BYTES + SLACK)
        offsets = memory.bytes("word offsets", (rows + 1) * 4)
        labels, lengths = address(self._labels), address(self._lengths)
        written = write_labels(address(codes), rows, labels, lengths, address(offsets), address(out))
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))


def sequence_texts(seq_no: Ints, group: GroupIndex, ordinal: Ints, memory: RowMemory) -> pa.Array:
    """Return `_sequence` for each row, in memory that the next batch overwrites.

    Raises:
        ProtocolError: an ordinal does not fit into its digits, so that texts would not sort.
    """
    rows = len(group)
    if rows and int(ordinal.max()) > MAX_ORDINAL:
        raise ProtocolError(f"a transaction of more than {MAX_ORDINAL + 1} row changes cannot be numbered.")
    out = memory.bytes("sequences", rows * SEQUENCE_WIDTH + SLACK)
    group, ordinal = np.ascontiguousarray(group, np.int32), np.ascontiguousarray(ordinal, np.int64)
    written = write_sequences(
        *(address(seq_no), seq_no.strides[0]), *(address(group), address(ordinal), rows, address(out))
    )
    offsets = _every_33rd(1 << rows.bit_length())[: rows + 1]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))


@lru_cache(maxsize=4)
def _every_33rd(count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.arange(0, (count + 1) * SEQUENCE_WIDTH, SEQUENCE_WIDTH, dtype=np.int32)


def gtid_texts(domain: Ints, server_id: Ints, seq_no: Ints, group: GroupIndex, memory: RowMemory) -> pa.Array:
    """Return `domain-server-sequence` for the transaction of each row, in memory that the next batch overwrites."""
    rows = len(group)
    out = memory.bytes("gtids", rows * GTID_WIDTH + SLACK)
    offsets = memory.bytes("gtid offsets", (rows + 1) * 4)
    group = np.ascontiguousarray(group, np.int32)
    written = write_gtids(
        *(address(domain), domain.strides[0]),
        *(address(server_id), server_id.strides[0]),
        *(address(seq_no), seq_no.strides[0]),
        *(address(group), rows, address(offsets), address(out)),
    )
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))


ENVELOPE_OPS = Labels(["insert", "update", "delete", "ddl"])
OP_DDL = 3  # in addition to the decoder's operations
READ = "read"
"""Operation of snapshot rows in the envelope. The flat shape has Spark's four kinds."""
FLAT_OPS = Labels(["insert", "update_preimage", "update_postimage", "delete"])


class RangeFacts:
    """Values that all rows of a range share.

    Attributes:
        server: the name of the server.
        file: the primary's binlog file; '' if it is unknown.
        data: the bytes of the range.
        read: for snapshot rows, the transaction after which the rows are valid; None for changes.
    """

    def __init__(self, server: str, file: str, data: memoryview, read: ReadRows | None = None) -> None:
        self.server = server
        self.file = file
        self.read = read
        self.bytes = np.frombuffer(data, np.uint8)


class ChangeRows:
    """One decoded batch on its way to Spark.

    Attributes:
        wanted: the columns of NUMBERS that the schema needs.
    """

    def __init__(self, changes: ChangeBatch, facts: RangeFacts, wanted: Collection[str], memory: RowMemory) -> None:
        self.changes = changes
        self.facts = facts
        self.memory = memory
        self._wanted = wanted
        self._numbers: Numbers | None = None

    def record_batch(self, schema: pa.Schema, columns: Mapping[str, Builder]) -> pa.RecordBatch:
        """Make the columns of `schema`.

        Args:
            schema: the query's schema.
            columns: ENVELOPE or FLAT. Columns that FLAT does not have are the table's columns, in their order.
        """
        images = iter(self.changes.columns)
        arrays = [columns[f.name](self, f.type) if f.name in columns else next(images) for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def number(self, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return one of NUMBERS for each row's transaction: int64, one value a row."""
        return self._taken().columns[name]

    def number_or_null(self, name: str) -> pa.Array:
        """Return `xid` or `thread`, with NULL for 0, which stands for a value that the server did not log."""
        values, present = self.number(name), self._taken().present[name]
        if not present:
            return self.nulls(pa.int64())
        return array_of(values) if present == len(values) else array_of(values, values == 0)

    def _taken(self) -> Numbers:
        if self._numbers is None:
            changes, facts = self.changes, self.facts
            self._numbers = numbers(changes.groups, changes.group, facts.bytes, self._wanted, self.memory)
        return self._numbers

    def nulls(self, kind: pa.DataType) -> pa.Array:
        rows = self.changes.rows
        return _nulls(kind, 1 << rows.bit_length())[:rows]

    def constant(self, text: str) -> pa.Array:
        rows = self.changes.rows
        return _repeated(text, 1 << rows.bit_length())[:rows] if text else self.nulls(pa.string())


@lru_cache(maxsize=16)
def _repeated(text: str, times: int) -> pa.Array:
    """Return an array of one repeated value. It is cached for all batches, some megabytes altogether."""
    return repeated(text, times)


@lru_cache(maxsize=16)
def _nulls(kind: pa.DataType, times: int) -> pa.Array:
    """Return an array of NULL. It is cached for all batches."""
    return pa.nulls(times, kind)


Builder = Callable[[ChangeRows, pa.DataType], pa.Array]


def _operation(labels: Labels, read: str) -> Builder:
    def build(rows: ChangeRows, _: pa.DataType) -> pa.Array:
        if rows.facts.read is not None:
            return rows.constant(read)
        op = rows.changes.op
        if len(op) and (op == op[0]).all():
            return rows.constant(labels.labels[int(op[0])])
        return labels.texts(op, rows.memory)

    return build


def _name(part: int) -> Builder:
    def build(rows: ChangeRows, _: pa.DataType) -> pa.Array:
        names = list(map(itemgetter(part), rows.changes.tables))  # of thousands of tables, in each batch
        distinct = set(names)
        if len(distinct) == 1:
            return rows.constant(names[0])
        if "" in distinct:
            names = [name or None for name in names]
        return array_of_values(names, pa.string()).take(array_of(rows.changes.table))

    return build


def _before(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    return _image(rows.changes.before, kind, rows.changes.before_valid)


def _after(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    return _image(rows.changes.after, kind, rows.changes.after_valid)


def _image(arrays: list[pa.Array], kind: pa.DataType, valid: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    if not arrays:  # a statement has no images
        return _nulls(kind, 1 << len(valid).bit_length())[: len(valid)]
    if len(arrays) == 1 and arrays[0].type == kind:
        return arrays[0]  # VARIANT: the decoder makes the struct itself
    return pa.StructArray.from_buffers(kind, len(valid), [validity(valid)], children=arrays)


def _gtid(rows: ChangeRows, _: pa.DataType) -> pa.Array:
    groups = rows.changes.groups
    return gtid_texts(groups.domain, groups.server_id, groups.seq_no, rows.changes.group, rows.memory)


def _sequence_number(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    """Return the sequence numbers in the type of the query's schema.

    Raises:
        SchemaError: a number does not fit into a BIGINT.
    """
    sequence = rows.number("sequence")
    if pa.types.is_decimal(kind):
        wide = np.zeros((len(sequence), 2), np.int64)  # the lower half of 128 bits, and the upper
        wide[:, 0] = sequence
        return pa.Array.from_buffers(kind, len(sequence), [None, pa.py_buffer(wide)])
    if len(sequence) and int(sequence.min()) < 0:
        gtid = _gtid(rows, pa.string())[int(sequence.argmin())]
        raise SchemaError(
            f"the sequence number of transaction {gtid} is 2^63 or more, and the column for it is a BIGINT.",
            hint="Set sequenceNumbers=decimal: then sequence_number and _commit_version are DECIMAL(20,0). The texts "
            "gtid and _sequence hold any number. In the flat shape the column can be left out with .schema(...).",
        )
    return array_of(sequence)


def _sequence(rows: ChangeRows, _: pa.DataType) -> pa.Array:
    sequence, read = rows.changes.groups.seq_no, rows.facts.read
    if read is not None and read.lowest:
        sequence = np.zeros(len(sequence), np.int64)
    return sequence_texts(sequence, rows.changes.group, rows.changes.ordinal, rows.memory)


def _commit_timestamp(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    if rows.facts.read is not None and not rows.facts.read.timestamp:
        return rows.nulls(kind)
    return array_of(rows.number("timestamp")).view(kind)


def _position(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    if rows.facts.read is not None:  # snapshot rows have no transaction and no place in the binlog
        return rows.nulls(kind)
    return array_of(rows.number("position"))


def _absent(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
    """Return the columns that the images lack. The STRUCT is NULL if both images are complete."""
    sides = rows.changes.absent_before, rows.changes.absent_after
    if sides[0] is None and sides[1] is None:
        return rows.nulls(kind)
    children = [
        rows.nulls(field.type) if side is None else side.cast(field.type)
        for field, side in zip(kind, sides, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pc.and_(*(c.is_null() for c in children)))


def _or_null(column: Callable[[ChangeBatch], pa.Array | None]) -> Builder:
    """Return the builder of a column that the decoder leaves out (None) if all of its values in a batch are NULL."""

    def build(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
        array = column(rows.changes)
        return rows.nulls(kind) if array is None else array.cast(kind)

    return build


def _struct(builders: Mapping[str, Builder]) -> Builder:
    def build(rows: ChangeRows, kind: pa.DataType) -> pa.Array:
        children = [builders[field.name](rows, field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    return build


TRANSACTION: Mapping[str, Builder] = {
    "gtid": _gtid,
    "domain_id": lambda rows, _: array_of(rows.number("domain")),
    "server_id": lambda rows, _: array_of(rows.number("server")),
    "sequence_number": _sequence_number,
    "commit_timestamp": _commit_timestamp,
    "xid": lambda rows, _: rows.number_or_null("xid"),
    "ordinal": lambda rows, _: array_of(rows.changes.ordinal),
    "is_last": lambda rows, _: array_of(rows.changes.last),
}
SOURCE: Mapping[str, Builder] = {
    "server": lambda rows, _: rows.constant(rows.facts.server),
    "file": lambda rows, _: rows.constant(rows.facts.file),
    "position": _position,
    "thread_id": lambda rows, _: rows.number_or_null("thread"),
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

_NAMES: Mapping[str, str] = {
    "domain_id": "domain",
    "server_id": "server",
    "sequence_number": "sequence",
    "_commit_version": "sequence",
    "commit_timestamp": "timestamp",
    "_commit_timestamp": "timestamp",
    "xid": "xid",
    "thread_id": "thread",
    "position": "position",
}


def numbers_of(schema: pa.Schema) -> frozenset[str]:
    """Return the columns of NUMBERS that a query's columns need.

    If a table has a column of such a name, the result may have a column that is not needed.
    """
    fields = [*schema, *(child for one in schema if pa.types.is_struct(one.type) for child in one.type)]
    return frozenset(_NAMES[one.name] for one in fields if one.name in _NAMES)


Bytes = np.ndarray[Any, np.dtype[np.uint8]]

NUMBERS: Final = ("domain", "server", "sequence", "timestamp", "xid", "thread", "position")
"""Columns in the kernel's order. `timestamp` is in microseconds. `position` is where the group begins in the primary's
binlog file, modulo 4 GiB, from the header of its GTID event.
"""


class Numbers(NamedTuple):
    """Requested columns by name, and the number of rows whose xid and thread are not 0."""

    columns: dict[str, Ints]
    present: dict[str, int]


def numbers(groups: Groups, group: GroupIndex, data: Bytes, wanted: Collection[str], memory: RowMemory) -> Numbers:
    """Make the columns `wanted`, some of NUMBERS, for each row.

    Args:
        groups: the groups of a range.
        group: index of each row's group, shape (rows,), int32.
        data: the range in which the groups were found.
        wanted: names of columns.
        memory: owner of the returned arrays. The next batch overwrites them.
    """
    group = np.ascontiguousarray(group, np.int32)
    rows = len(group)
    columns = {name: memory.bytes(name, rows * 8).view(np.int64) for name in NUMBERS if name in wanted}
    present = np.zeros(2, np.int64)
    arguments = [address(groups.records), address(group), rows]
    arguments += [address(data), address(groups.start), groups.start.strides[0]]
    arguments += [address(columns[name]) if name in columns else 0 for name in NUMBERS]
    arguments.append(address(present))
    take_numbers(*arguments)
    return Numbers(columns, {"xid": int(present[0]), "thread": int(present[1])})


# New memory for every batch comes from the system page by page, each filled with zeros, which takes longer than
# writing the columns. Each batch overwrites the arrays of the previous one, as the decoder's own buffers do.


class RowMemory:
    """Byte arrays by name. Each is as large as the largest batch has needed."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def bytes(self, name: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return an array of `size` bytes, not initialized. The next call with this name returns the same memory."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = self._arrays[name] = np.empty(size, np.uint8)
        return array[:size]
