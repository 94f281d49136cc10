"""Rows of tables that are delivered in part: what a decoder gives is what a full decode has, judged row by row in
Python.

The oracle decodes everything, keeps the rows whose key lies in what is delivered, makes a delete or an insert of an
update that crosses the border, and only then asks which row is the last of its transaction.

The keys of table maps too: those that are of the type that the catalog says, and those that are refused.
"""

from __future__ import annotations

import pickle
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import KeyChangedError, PrerequisiteError, SchemaError
from replica.protocol.constants import ColumnType as T
from replica.protocol.constants import EventType
from replica.protocol.rows.table_map import ColumnDef
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.decode.frontier import DeliveredKeys, OpenEnds, OpenTable
from replica.rows.decode.open_rows import RowKeys
from replica.rows.scan.xa import CarriedGroup
from replica.rows.tables.layout import TableTarget
from replica.rows.types.types import OutputColumn
from replica.schema.patterns import ColumnMatcher
from replica.schema.table import ColumnSchema
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import COMPRESSED, KINDS, UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.protocol.rows.table_map import TableMapEvent

COLUMNS = [Column("a", 3), Column("b", 15, struct.pack("<H", 40), collation=63), Column("c", 3)]
OUTPUT = [OutputColumn("b", pa.binary(), "BINARY"), OutputColumn("a", pa.int32(), "INT")]
TABLES = "stu"  # s is delivered, t in part, u not at all
INSERTED, UPDATED, DELETED = range(3)
SHAPES = ("envelope", "flat", "variant")

Row = tuple[int, str, int]
Change = tuple[str, int, int, tuple[int, str] | None, tuple[int, str] | None]  # table, op, ordinal, before, after


class Selected(NamedTuple):
    """A resolver of all tables of the stream."""

    target: TableTarget

    def resolve(self, _: TableMapEvent) -> TableTarget | None:
        return self.target


def declared(name: str) -> ColumnSchema:
    if name.lower() == "b":
        return ColumnSchema(name=name, data_type="varbinary", column_type="varbinary(40)", octets=40)
    return ColumnSchema(name=name, data_type="int", column_type="int(11)")


class Border(NamedTuple):
    """The last key that is delivered: (a, c), or the text b."""

    columns: tuple[str, ...]
    values: tuple[int, ...] | str

    def takes_in(self, row: Row) -> bool:
        if isinstance(self.values, str):
            return row[1] <= self.values
        return (row[0], row[2])[: len(self.values)] <= self.values

    @property
    def delivered(self) -> DeliveredKeys:
        if isinstance(self.values, str):
            key = self.values.encode() + b"\0\0"
        else:
            key = b"".join(struct.pack(">I", value + (1 << 31)) for value in self.values)
        return DeliveredKeys(("d", "s"), (OpenTable(("d", "t"), tuple(map(declared, self.columns)), key),))


_rows = st.tuples(st.integers(-2, 2), st.sampled_from(["", "k", "x", "long enough"]), st.integers(-1, 1))
_event = st.tuples(
    st.sampled_from(TABLES), st.integers(0, 2), st.booleans(), st.lists(st.tuples(_rows, _rows), min_size=1, max_size=4)
)
_groups = st.lists(st.lists(_event, max_size=4), min_size=1, max_size=4)
_borders = st.one_of(
    st.builds(lambda a: Border(("a",), (a,)), st.integers(-3, 2)),
    st.builds(lambda a, c: Border(("a", "c"), (a, c)), st.integers(-2, 2), st.integers(-1, 1)),
    st.builds(lambda b: Border(("B",), b), st.sampled_from(["", "j", "long", "x"])),
)


def encoded(row: Row) -> bytes:
    number, text, other = row
    return image([struct.pack("<i", number), bytes([len(text)]) + text.encode(), struct.pack("<i", other)])


def write_events(stream: Primary, events: Iterable[tuple[str, int, bool, list[tuple[Row, Row]]]]) -> None:
    for table, op, compressed, pairs in events:
        number = 1 + TABLES.index(table)
        stream.event(EventType.TABLE_MAP, table_map(number, COLUMNS, table=table))
        images = b"".join(encoded(b) + (encoded(a) if op == UPDATED else b"") for b, a in pairs)
        if compressed:
            images = bodies.block(images)
        kinds = COMPRESSED if compressed else KINDS
        stream.event(kinds[op], rows(number, 3, images, after=[True] * 3 if op == UPDATED else None))


def stream_of(groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]]) -> bytes:
    stream = Primary()
    for events in groups:
        stream.gtid()
        write_events(stream, events)
        stream.xid()
    return bytes(stream)


def judged(
    events: Iterable[tuple[str, int, bool, list[tuple[Row, Row]]]],
    border: Border,
    target: TableTarget = TableTarget(),  # noqa: B008
) -> list[tuple[Change, bool]]:
    """The changes of one group that are delivered, each with whether it is the last that is selected."""
    found: list[Change] = []
    ordinal = -1
    for table, op, _, pairs in events:
        for before, after in pairs:
            ordinal += 1
            was, comes = op != INSERTED, op != DELETED
            new = after if op == UPDATED else before
            if table == "u":
                continue
            if table == "t":
                was, comes = was and border.takes_in(before), comes and border.takes_in(new)
            kind = UPDATED if was and comes else INSERTED if comes else DELETED
            if not (was or comes) or not target.operations >> kind & 1:
                continue
            if target.skip_unchanged and kind == UPDATED and before[:2] == new[:2]:
                continue
            found.append((table, kind, ordinal, before[:2] if was else None, new[:2] if comes else None))
    last = found[-1][2] if found else -1
    return [(change, change[2] == last) for change in found if target.delivered >> change[1] & 1]


def shaped(changes: list[tuple[Change, bool]], shape: str) -> list[tuple[object, ...]]:
    """The same as rows of a shape: table, op, ordinal, last, and the images."""
    if shape != "flat":
        return [(table, op, n, last, before, after) for (table, op, n, before, after), last in changes]
    found: list[tuple[object, ...]] = []
    for (table, op, n, before, after), last in changes:
        if op == UPDATED:
            found += [(table, 1, n, False, before), (table, 2, n, last, after)]
        else:
            found.append((table, 3 if op == DELETED else 0, n, last, before or after))
    return found


def decoded(
    data: bytes,
    delivered: DeliveredKeys | None,
    *,
    target: TableTarget = TableTarget(),  # noqa: B008
    shape: str = "envelope",
    carried: tuple[CarriedGroup, ...] = (),
    ends: OpenEnds = OpenEnds(),  # noqa: B008
) -> list[tuple[object, ...]]:
    """The rows that a decoder gives, less those that are to be dropped; batches of three rows end anywhere."""
    options = DecodeOptions(shape=shape, batch_rows=3, reuse_buffers=True)  # type: ignore[arg-type]
    decoder = RangeDecoder(Selected(target), options, None if shape == "variant" else OUTPUT)
    found: list[tuple[object, ...]] = []
    for batch in decoder.decode(data, checksum=True, delivered=delivered, carried=carried, ends=ends):
        kept = [True] * batch.rows if batch.kept is None else batch.kept.tolist()
        names = [batch.tables[number].table for number in batch.table]
        beside = list(zip(names, batch.op.tolist(), batch.ordinal.tolist(), batch.last.tolist(), strict=True))
        if shape == "flat":
            images = [_typed(batch.columns)]
        elif shape == "envelope":
            images = [
                [row if valid else None for row, valid in zip(_typed(side), held.tolist(), strict=True)]
                for side, held in ((batch.before, batch.before_valid), (batch.after, batch.after_valid))
            ]
        else:
            images = [_variants(side[0]) for side in (batch.before, batch.after)]
        found += [(*facts, *shown) for facts, keep, *shown in zip(beside, kept, *images, strict=True) if keep]
    return found


def _typed(columns: list[pa.Array]) -> list[tuple[int, str]]:
    return [(a, (b or b"").decode()) for b, a in zip(*(column.to_pylist() for column in columns), strict=True)]


def _variants(side: pa.Array) -> list[tuple[int, str] | None]:
    """The values of a VARIANT object of `a`, an integer, and `b`, a binary, in the order of their names."""
    return [None if row is None else _object(row["value"]) for row in side.to_pylist()]


def _object(value: bytes) -> tuple[int, str]:
    # Header, count, two ids of fields, three offsets, the values (Parquet's VARIANT encoding, objects).
    assert value[1] == 2
    first, second = value[4], value[5]
    body = value[7:]
    number = int.from_bytes(body[first + 1 : first + 1 + {3: 1, 4: 2, 5: 4}[body[first] >> 2]], "little", signed=True)
    size = int.from_bytes(body[second + 1 : second + 5], "little")
    return number, body[second + 5 : second + 5 + size].decode()


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=60)
@given(groups=_groups, border=_borders, operations=st.integers(1, 7), filtered=st.integers(0, 7), skip=st.booleans())
def test_a_decoder_gives_what_lies_in_what_is_delivered(
    shape: str,
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
    border: Border,
    operations: int,
    filtered: int,
    *,
    skip: bool,
) -> None:
    shown = ColumnMatcher(["a", "b"]) if shape == "variant" else None
    target = TableTarget(None, operations, operations & ~filtered or operations, shown, skip_unchanged=skip)
    expected = [row for events in groups for row in shaped(judged(events, border, target), shape)]
    assert decoded(stream_of(groups), border.delivered, target=target, shape=shape) == expected


@settings(max_examples=30)
@given(groups=_groups)
def test_all_or_nothing_needs_no_look_at_a_key(
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
) -> None:
    data = stream_of(groups)
    everything = decoded(data, None)
    whole = OpenTable(("d", "u"), (declared("no such column"),), None)
    assert decoded(data, DeliveredKeys(("d", "t"), (whole,))) == everything
    alone = decoded(data, DeliveredKeys(("d", "t"), (whole,), (("d", "s"), ("d", "t"), ("d", "u"))))
    assert [row[:3] + row[4:] for row in alone] == [row[:3] + row[4:] for row in everything if row[0] == "u"]
    assert decoded(data, DeliveredKeys(None)) == []


@settings(max_examples=30)
@given(before=st.lists(_event, max_size=3), inside=st.lists(_event, max_size=3), border=_borders)
def test_rows_of_an_xa_transaction_count_where_it_is_committed(
    before: list[tuple[str, int, bool, list[tuple[Row, Row]]]],
    inside: list[tuple[str, int, bool, list[tuple[Row, Row]]]],
    border: Border,
) -> None:
    earlier, stream = Primary(), Primary()
    for primary, name, events in ((earlier, "x", before), (stream, "y", inside)):
        primary.begin(xa=name)
        write_events(primary, events)
        primary.xa_prepared(name)
    stream.gtid()
    write_events(stream, inside)
    stream.xid()
    stream.xa_end("x")
    stream.xa_end("y")
    expected = [row for events in (inside, before, inside) for row in shaped(judged(events, border), "envelope")]
    carried = (CarriedGroup(bytes(earlier), checksum=True),)
    assert decoded(bytes(stream), border.delivered, carried=carried) == expected


@settings(max_examples=30)
@given(events=st.lists(_event, min_size=1, max_size=4), border=_borders, cut=st.integers(1, 3))
def test_a_part_of_a_transaction_counts_from_where_it_begins(
    events: list[tuple[str, int, bool, list[tuple[Row, Row]]]], border: Border, cut: int
) -> None:
    expected = shaped(judged(events, border), "envelope")
    rows_before = sum(len(pairs) for *_, pairs in events[:cut])
    found = decoded(stream_of([events[:cut]]), border.delivered, ends=OpenEnds(rows_follow=True))
    found += decoded(stream_of([events[cut:]]), border.delivered, ends=OpenEnds(rows_before=rows_before))
    assert [row[:3] + row[4:] for row in found] == [row[:3] + row[4:] for row in expected]


def of_one_update(columns: list[Column], before: list[bool], after: list[bool], images: bytes) -> bytes:
    stream = Primary()
    body = table_map(1, columns, table="t")
    stream.rows(body, (UPDATE, rows(1, len(columns), images, before=before, after=after)))
    return bytes(stream)


ONLY_KEY = [True, False, False]
NUMBERS = [struct.pack("<i", value) for value in range(4)]


def test_an_update_that_does_not_set_the_key_stays_where_it_is() -> None:
    """binlog_row_image=MINIMAL: the key before, what was set after."""
    data = of_one_update(COLUMNS, ONLY_KEY, [False, True, False], image([NUMBERS[1]]) + image([b"\1x"]))
    assert [row[:4] for row in decoded(data, Border(("a",), (1,)).delivered)] == [("t", UPDATED, 0, True)]
    assert decoded(data, Border(("a",), (0,)).delivered) == []


def test_a_row_that_leaves_needs_no_more_than_its_key() -> None:
    data = of_one_update(COLUMNS, ONLY_KEY, ONLY_KEY, image([NUMBERS[1]]) + image([NUMBERS[2]]))
    assert [row[:4] for row in decoded(data, Border(("a",), (1,)).delivered)] == [("t", DELETED, 0, True)]


@pytest.mark.parametrize(
    ("border", "before", "images", "what"),
    [
        ((1,), ONLY_KEY, image([NUMBERS[2]]) + image([NUMBERS[1]]), "hold only a part of the columns of a row"),
        ((1,), [False, True, False], image([b"\1x"]) + image([NUMBERS[1]]), "do not contain the key of a row"),
    ],
)
def test_images_that_do_not_tell_enough_are_refused_by_transaction(
    border: tuple[int, ...], before: list[bool], images: bytes, what: str
) -> None:
    data = of_one_update(COLUMNS, before, ONLY_KEY, images)
    with pytest.raises(PrerequisiteError, match=rf"transaction 3-9-1 {what} of d\.t.*binlog_row_image=FULL"):
        decoded(data, Border(("a",), border).delivered)


def test_a_table_map_without_a_column_of_the_key_is_refused() -> None:
    data = of_one_update(COLUMNS[1:], [True] * 2, [True] * 2, image([b"\1x", NUMBERS[1]]) * 2)
    with pytest.raises(SchemaError, match=r"rows of d\.t in the binlog do not have the key .* no column a"):
        decoded(data, Border(("a",), (1,)).delivered)


def test_what_is_delivered_travels_to_tasks() -> None:
    delivered = Border(("a", "c"), (1, 2)).delivered
    assert pickle.loads(pickle.dumps(delivered)) == delivered  # noqa: S301


def test_names_sort_as_their_bytes() -> None:
    delivered = DeliveredKeys(("d", "\uff5a"))
    assert delivered.of(("d", "z")) is True
    assert delivered.of(("d", "😀")) is False  # behind in UTF-8; before in UTF-16
    assert delivered.of(("e", "a")) is False


def of_type(data_type: str, column_type: str = "", **more: Any) -> ColumnSchema:
    return ColumnSchema(name="k", data_type=data_type, column_type=column_type or data_type, **more)


def keys_of(column: ColumnSchema, unfit: dict[int, SchemaError] | None = None, **wire: Any) -> RowKeys:
    """The key of one table map with one column, `k`."""
    columns = (ColumnDef(**{"metadata": b"", "length": 4} | wire),)
    table = SimpleNamespace(
        name=("d", "t"),
        table_map=SimpleNamespace(columns=columns, database="d", table="t"),
        layout=SimpleNamespace(columns=[SimpleNamespace(name="k")]),
    )
    slots: Any = SimpleNamespace(records=[None], table=lambda _: table)
    return RowKeys(slots, lambda _: [column], unfit)


TEXT = of_type("varchar", charset="latin1", collation="latin1_bin")


@pytest.mark.parametrize(
    ("column", "same", "other"),
    [
        (
            of_type("decimal", "decimal(10,2)", precision=10, scale=2),
            {"type": T.NEWDECIMAL, "precision": 10, "scale": 2},
            {"scale": 4},
        ),
        (of_type("datetime", fsp=1), {"type": T.DATETIME2, "length": 6, "fsp": 1}, {"fsp": 2}),
        (of_type("int"), {"type": T.LONG, "unsigned": False}, {"unsigned": True}),
        (of_type("int", unsigned=True), {"type": T.LONG, "unsigned": True}, {"unsigned": False}),
        (TEXT, {"type": T.VARCHAR, "collation": 8}, {"collation": 45}),
        (TEXT, {"type": T.VARCHAR, "collation": 47}, {"collation": 63}),
        (
            of_type("enum", labels=("a",), charset="binary"),
            {"type": T.ENUM, "length": 1, "collation": 63},
            {"length": 2},
        ),
    ],
)
def test_another_type_of_the_same_name_is_refused(
    column: ColumnSchema, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """Its values may take as many bytes, and mean other things."""
    assert keys_of(column, **same).wanted.all()
    with pytest.raises(KeyChangedError, match=r"rows of d\.t .* column k is .* in the binlog is different"):
        keys_of(column, **same | other)
    unfit: dict[int, SchemaError] = {}
    assert not keys_of(column, unfit, **same | other).wanted.any()
    assert isinstance(unfit[0], KeyChangedError)
