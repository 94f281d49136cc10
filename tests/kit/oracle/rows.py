"""The plain twin of the kernels: rows events to Python values, and to the same Arrow arrays. Slow, obvious, complete.

In: a `RowsEvent` and the `RowLayout` of its table map. Out: one `RowChange` per row; its images map the names of the
columns that are present to values, so that "absent" (binlog_row_image=MINIMAL) and NULL stay two things. `typed` and
`variant` turn images into what the kernels make of them, and tests compare the two. Damaged images are ProtocolErrors
that name the column; a date that does not exist is what the policy says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from replica.errors import ProtocolError
from replica.protocol.compression import inflate
from replica.protocol.rows import values as v
from replica.protocol.rows.rows_event import RowsKind
from replica.protocol.wire import Cursor, is_set
from replica.rows.tables.layout import ABSENT
from replica.rows.types.kinds import Kind
from replica.rows.types.types import KINDS, ValuePolicy, variant_metadata
from tests.kit.oracle.variant import variant_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.protocol.rows.rows_event import RowsEvent
    from replica.rows.tables.layout import RowLayout
    from replica.rows.tables.plan import ColumnPlan

Image = dict[str, Any]

# TIMESTAMP's last value: `row_end` of current rows, before 11.5 and from there on.
_ENDS_OF_TIME = [timedelta(seconds=seconds, microseconds=999_999) for seconds in ((1 << 31) - 1, (1 << 32) - 1)]

VARIANT = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)])


@dataclass(frozen=True, slots=True)
class RowChange:
    """One changed row: INSERT has no `before`, DELETE no `after`.

    `absent_*`: names of the columns put out that the image lacks, None where it is whole or there is none. `closed_*`:
    whether the image's version of a versioned table's row is closed, None where the image does not tell.
    """

    kind: RowsKind
    before: Image | None
    after: Image | None
    absent_before: list[str] | None = None
    absent_after: list[str] | None = None
    closed_before: bool | None = None
    closed_after: bool | None = None

    @property
    def history(self) -> bool | None:
        """Whether the row is a history row: what the after image tells, else the before image."""
        return self.closed_before if self.closed_after is None else self.closed_after


class _Read(NamedTuple):
    image: Image | None = None
    absent: list[str] | None = None
    closed: bool | None = None


def read_rows(event: RowsEvent, layout: RowLayout, policy: ValuePolicy = ValuePolicy()) -> Iterator[RowChange]:  # noqa: B008
    """Yield the rows of one event. ProtocolError where the bytes do not fit the layout."""
    if event.width != len(layout.columns):
        raise ProtocolError(
            f"a rows event of {event.width} columns after a table map of {len(layout.columns)} "
            f"({layout.database}.{layout.table})"
        )
    images = Cursor(inflate(event.images) if event.compressed else event.images)
    while images:
        start = images.offset
        before = after = _Read()
        if event.kind != RowsKind.INSERT:
            before = _read_image(images, event.columns_before, layout, policy)
        if event.kind != RowsKind.DELETE:
            after = _read_image(images, event.columns_after, layout, policy)
        if images.offset == start:
            raise ProtocolError("a rows event without columns has row images", offset=start)
        yield RowChange(event.kind, before.image, after.image, before.absent, after.absent, before.closed, after.closed)


def _read_image(images: Cursor, columns_present: bytes, layout: RowLayout, policy: ValuePolicy) -> _Read:
    present = [column for i, column in enumerate(layout.columns) if is_set(columns_present, i)]
    nulls = images.bits(len(present))
    image: Image = {}
    closed = None
    for k, column in enumerate(present):
        value = None
        if not is_set(nulls, k):
            at = images.offset
            size = int.from_bytes(images.take(column.prefix), "little") if column.prefix else column.width
            data = bytes(images.take(size))
            value = _read_value(data, column, policy, at)
            if column.row_end:
                closed = v.timestamp(data) not in _ENDS_OF_TIME
        if column.kind != Kind.OPAQUE:
            image[column.name] = value
    if len(present) == len(layout.columns):
        return _Read(image, None, closed)
    lacking = [name for i, name in enumerate(layout.names) if name is not None and not is_set(columns_present, i)]
    return _Read(image, lacking, closed)


def _read_value(data: bytes, column: ColumnPlan, policy: ValuePolicy, at: int) -> object:
    try:
        value = KINDS[column.kind].binlog.read(data, column)
    except ProtocolError as error:
        raise ProtocolError(f"column {column.name}: {error.message}", offset=at) from None
    if policy.invalid_text == "error" and column.charset is not None and not column.charset.is_valid(data):
        raise ProtocolError(
            f"column {column.name} ({column.declared}) holds bytes that are not text in {column.charset.name}",
            offset=at,
            hint="Set invalidText to 'replace' to replace such bytes with U+FFFD.",
        )
    if value is None and KINDS[column.kind].as_text is not None and policy.invalid_dates == "error":
        raise ProtocolError(
            f"column {column.name} ({column.declared}) holds a date that does not exist",
            offset=at,
            hint="Set invalidDates to 'null' or 'text' to accept such dates.",
        )
    return value


def typed(images: Sequence[Image | None], layout: RowLayout) -> list[pa.Array]:
    """Return one array per output column. No image, no such column on the wire, absent, NULL: all four are NULL
    here.
    """
    arrays = []
    for output, source in zip(layout.outputs, layout.sources, strict=True):
        name = None if source == ABSENT else layout.columns[source].name
        values = [None if image is None or name is None else image.get(name) for image in images]
        arrays.append(pa.array(values, output.arrow))
    return arrays


def flat(changes: Sequence[RowChange]) -> tuple[list[int], list[Image]]:
    """Return (operations, images) of the flat shape: an UPDATE is two rows. 0 insert, 1 preimage, 2 postimage, 3
    delete.
    """
    rows: list[tuple[int, Image]] = []
    for change in changes:
        if change.before is not None:
            rows.append((3 if change.kind == RowsKind.DELETE else 1, change.before))
        if change.after is not None:
            rows.append((0 if change.kind == RowsKind.INSERT else 2, change.after))
    return [op for op, _ in rows], [image for _, image in rows]


def variant(images: Sequence[Image | None], layout: RowLayout) -> pa.Array:
    """Return one VARIANT per image, NULL where there is none."""
    metadata = variant_metadata([column.name for column in layout.shown])
    rows = [
        None if image is None else {"value": variant_object(layout.shown, image), "metadata": metadata}
        for image in images
    ]
    return pa.array(rows, VARIANT)
