"""A transaction cut anywhere gives the rows of the undivided one: values, identity, is_last, xid, source.

The oracle is the same decoder over the whole group. Streams are random: several tables of which not all are selected,
statements over several events and tables, UPDATEs, compressed events, empty events, texts of statements, savepoints
and what is rolled back to them, other groups around; ends with XID, COMMIT, ROLLBACK, XA PREPARE.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.protocol.constants import EventType
from replica.relay_log.log import RelayRange
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_group, count_rows
from replica.rows.decode.row_index import index_rows
from replica.rows.scan import windows
from replica.rows.scan.scan import scan
from streaming_source.ranges import large_groups
from streaming_source.ranges.large_groups import LargeGroups
from streaming_source.rows.change_rows import RangeFacts, RowMemory, numbers
from streaming_source.rows.partition import MappedRange, RowBounds
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from replica.rows.decode.batch import ChangeBatch, Groups

COLUMNS = [Column("id", 3), Column("name", 15, b"\x64\x00")]
MAPS = {1: table_map(1, COLUMNS, table="orders"), 2: table_map(2, COLUMNS[:1], table="log")}
COMPRESSED = {INSERT: 166, UPDATE: 167, DELETE: 168}
SELECTED = SelectedTables(("d.orders",), {})
ALL = SelectedTables(("*.*",), {})
SELECTIONS = [
    *(SELECTED, ALL, SelectedTables(("d.orders",), {}, operations=("insert", "delete"))),
    SelectedTables(("*.*",), {}, exclude=("d.log",), skip_unchanged=True),
]
UPDATES = SelectedTables(("*.*",), {}, operations=("update", "delete"))
CHANGED = SelectedTables(("d.orders",), {}, columns=("name",), skip_unchanged=True)
"""Names never change in these streams: no update is left."""


@st.composite
def statements(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Statements of rows events: (table, operation, rows, compressed); the last event ends the statement.

    `savepoints` follow it: names that are set, and, with a number, the savepoint that is rolled back to: of those that
    are there then, from the oldest.
    """
    event = st.tuples(
        st.sampled_from([1, 2]), st.sampled_from([INSERT, UPDATE, DELETE]), st.integers(0, 4), st.booleans()
    )
    statement = st.fixed_dictionaries(
        {
            "text": st.booleans(),
            "events": st.lists(event, min_size=1, max_size=5),
            "savepoints": st.lists(st.sampled_from([b"a", b"b", b"B", 0, 1, 2]), max_size=3),
        }
    )
    return draw(st.lists(statement, min_size=1, max_size=6))


def write_statements(stream: Primary, made: list[dict[str, Any]]) -> None:
    number = 0
    names: list[bytes] = []
    for index, statement in enumerate(made):
        if statement["text"]:
            stream.event(EventType.ANNOTATE_ROWS, b"INSERT number %d" % index)
        for table in sorted({table for table, *_ in statement["events"]}):
            stream.event(EventType.TABLE_MAP, MAPS[table])
        for place, (table, kind, count, compressed) in enumerate(statement["events"], 1):
            images = b""
            for _ in range(count):
                number += 1
                one = image([struct.pack("<i", number), b"\x02ab"][: 3 - table])
                other = image([struct.pack("<i", number - 1), b"\x01b"][: 3 - table])
                images += one + (one if number % 3 else other) if kind == UPDATE else one
            body = images
            if compressed and images:
                body = bodies.block(images)
            width = 3 - table
            event = rows(
                *(table, width, body), after=[True] * width if kind == UPDATE else None,
                flags=int(place == len(statement["events"])),
            )  # fmt: skip
            stream.event(COMPRESSED[kind] if compressed and images else kind, event)
        for what in statement["savepoints"]:
            if isinstance(what, bytes):
                names = [name for name in names if name.upper() != what.upper()] + [what]
                stream.query(b"SAVEPOINT `%s`" % what)
            elif what < len(names):
                names = names[: what + 1]
                stream.query(b"ROLLBACK TO `%s`" % names[what].swapcase())


def rows_of(data: memoryview, tables: SelectedTables, **lies: Any) -> Iterator[tuple[Any, ...]]:
    """Everything a row shows, of one range."""
    decoder = RangeDecoder(tables, DecodeOptions(shape="variant", want_sql=True, batch_rows=3))
    facts = RangeFacts("server", "bin.1", data)
    for batch in decoder.decode(data, **lies):
        yield from _shown(batch, facts)


def _shown(batch: ChangeBatch, facts: RangeFacts) -> Iterator[tuple[Any, ...]]:
    groups: Groups = batch.groups
    every = np.arange(len(groups), dtype=np.int32)
    positions = numbers(groups, every, facts.bytes, {"position"}, RowMemory()).columns["position"]
    texts = batch.sql.to_pylist() if batch.sql is not None else [None] * batch.rows
    images = zip(batch.before[0].to_pylist(), batch.after[0].to_pylist(), strict=True)
    for row, (text, image_pair) in enumerate(zip(texts, images, strict=True)):
        group = int(batch.group[row])
        fields = (groups.domain, groups.server_id, groups.seq_no, groups.commit_ts, groups.xid, groups.thread_id)
        yield (
            *(int(field[group]) for field in (*fields, positions)),
            *(int(batch.ordinal[row]), bool(batch.last[row]), batch.tables[batch.table[row]], int(batch.op[row])),
            *(text, image_pair),
        )


def read(parts: Sequence[MappedRange], tables: SelectedTables, rows: Sequence[RowBounds] = ()) -> list[tuple[Any, ...]]:
    found = []
    for part in parts:
        data = part.data()
        carried = part.carried_groups()
        assert bytes(part.inline().data()) == bytes(data)
        found += list(rows_of(data, tables, checksum=part.checksum, carried=carried, ends=part.ends))
    for bounds in rows:
        found = [row for row in found if bounds.first <= row[7] < (bounds.end or 1 << 60)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


def log_file(folder: Path, content: bytes) -> str:
    path = folder / "relay.000001"
    path.write_bytes(content)
    return str(path)


@given(
    made=statements(),
    checksum=st.booleans(),
    ending=st.sampled_from(["xid", "commit", "rollback"]),
    target=st.integers(1, 300),
    tables=st.sampled_from([SELECTED, ALL, UPDATES, CHANGED]),
    block=st.sampled_from([1, 2, 5, 1 << 16]),
    window=st.sampled_from([1, 40, 200, 16 << 20]),
)
def test_any_cut_gives_the_rows_of_the_whole_transaction(
    folder: Path,
    made: list[dict[str, Any]],
    *,
    checksum: bool,
    ending: str,
    target: int,
    tables: SelectedTables,
    block: int,
    window: int,
) -> None:
    stream = Primary(checksum=checksum)
    stream.gtid(None, 2, struct.pack("<Q", 5))
    stream.event(EventType.TABLE_MAP, MAPS[1])
    stream.event(INSERT, rows(1, 2, image([struct.pack("<i", 0), b"\x01x"])))
    stream.xid(1)
    start = len(bytes(stream))
    stream.gtid(None, 2, struct.pack("<Q", 6))
    write_statements(stream, made)
    if ending == "xid":
        stream.xid()
    else:
        stream.query(ending.upper().encode())
    data = bytes(stream)
    group = RelayRange(log_file(folder, data), start, len(data), checksum)
    groups = finely_indexed(tables, group, block, window)
    parts = groups.parts(group, target)
    assert read(parts, tables) == list(rows_of(memoryview(data)[start:], tables, checksum=checksum))


def finely_indexed(
    tables: SelectedTables, group: RelayRange, block: int = 1 << 16, window: int = windows.WINDOW_BYTES
) -> LargeGroups:
    """With a border at each rows event."""
    groups = LargeGroups(tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW_BYTES", window)
        patch.setattr(
            large_groups,
            "index_rows",
            lambda data, **known: index_rows(data, **known, border_bytes=1, block_events=block),
        )
        groups.index(group)
    return groups


@given(
    made=statements(),
    checksum=st.booleans(),
    ending=st.sampled_from(["xid", "rollback", "prepare"]),
    tables=st.sampled_from([SELECTED, ALL, UPDATES]),
    window=st.sampled_from([1, 40, 200, 16 << 20]),
)
def test_rows_of_a_group_are_counted_in_windows(
    made: list[dict[str, Any]], *, checksum: bool, ending: str, tables: SelectedTables, window: int
) -> None:
    stream = Primary(checksum=checksum)
    stream.begin(xa="x" if ending == "prepare" else None)
    write_statements(stream, made)
    match ending:
        case "xid":
            stream.xid()
        case "rollback":
            stream.query(b"ROLLBACK")
        case _:
            stream.xa_prepared("x")
    passed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW_BYTES", window)
        groups, counts = count_group(bytes(stream), tables, checksum=checksum, on_progress=passed.append)
    whole, expected = count_rows(bytes(stream), tables, checksum=checksum)
    assert counts.tolist() == expected.tolist()
    assert (groups.start.tolist(), groups.end.tolist()) == (whole.start.tolist(), whole.end.tolist())
    assert passed == sorted(passed) or any(statement["savepoints"] for statement in made)
    assert passed[-1] == len(bytes(stream))


@given(made=statements(), checksum=st.booleans(), target=st.integers(1, 300), tables=st.sampled_from(SELECTIONS))
def test_a_prepared_transaction_is_cut_under_the_gtid_of_its_xa_commit(
    folder: Path, made: list[dict[str, Any]], *, checksum: bool, target: int, tables: SelectedTables
) -> None:
    stream = Primary(checksum=checksum)
    begin = stream.begin(xa="x")
    write_statements(stream, made)
    stream.query(b"XA END X'78',X'',1")
    stream.xa_prepared("x")
    between = len(bytes(stream))
    stream.xa_end("x")
    data = bytes(stream)
    path = log_file(folder, data)
    prepared, commit = RelayRange(path, begin, between, checksum), RelayRange(path, between, len(data), checksum)
    groups = finely_indexed(tables, prepared)
    expected = [
        row[:6] + row[7:] for row in rows_of(memoryview(data), tables, checksum=checksum)
    ]  # the position is that of the XA COMMIT's event, which its header tells
    parts = groups.parts(prepared, target, commit=commit)
    assert [row[:6] + row[7:] for row in read(parts, tables)] == expected
    assert groups.parts(prepared, target) == []


@given(made=statements(), target=st.integers(1, 300), places=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_parts_of_some_rows_hold_these_and_read_little_else(
    folder: Path, made: list[dict[str, Any]], target: int, places: tuple[int, int]
) -> None:
    stream = Primary()
    stream.gtid()
    write_statements(stream, made)
    stream.xid()
    data = bytes(stream)
    group = RelayRange(log_file(folder, data), 0, len(data), checksum=True)
    groups = finely_indexed(ALL, group)
    bounds = (RowBounds(3, 1, min(places), max(places)),)
    parts = groups.parts(group, target, bounds)
    whole = list(rows_of(memoryview(data), ALL, checksum=True))
    assert read(parts, ALL, bounds) == [row for row in whole if min(places) <= row[7] < max(places)]
    index = groups.index(group)
    assert index is not None
    if parts and len(index.offsets):
        largest = int(np.diff(np.concatenate(([0], index.rows, [index.total_rows]))).max())
        assert len(read(parts, ALL)) <= max(places) - min(places) + 2 * largest


def test_an_index_has_few_borders_however_large_the_group(folder: Path) -> None:
    stream = Primary()
    stream.gtid()
    write_statements(stream, [{"text": False, "savepoints": [], "events": [(1, INSERT, 50, False)] * 400}])
    stream.xid()
    data = bytes(stream)
    index = index_rows(data, checksum=True, resolver=ALL)
    assert index is not None
    assert index.total_rows == index.total_selected == 20_000
    assert 10 < len(index.offsets) <= len(data) // (8 << 10) + 1
    found = scan(data, checksum=True)
    assert set(index.offsets.tolist()) <= {int(e) + found.trailer for e in found.events["end"]}
    assert (np.diff(index.rows) > 0).all()


def test_the_text_of_a_statement_is_not_repeated_in_parts_that_are_not_larger(folder: Path) -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.ANNOTATE_ROWS, b"INSERT" * 2000)
    write_statements(stream, [{"text": False, "savepoints": [], "events": [(1, INSERT, 50, False)] * 200}])
    stream.xid()
    data = bytes(stream)
    group = RelayRange(log_file(folder, data), 0, len(data), checksum=True)
    parts = LargeGroups(ALL).parts(group, 9000)
    assert len(parts) > 1
    assert sum(part.size for part in parts) < len(data) * 1.4
    assert read(parts, ALL) == list(rows_of(memoryview(data), ALL, checksum=True))
