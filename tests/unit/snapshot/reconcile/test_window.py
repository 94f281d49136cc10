"""Rows that were read, moved to any place of the stream: the oracle replays the table's history row by row.

A reading sees the table as it was at some group `seen`; all that is known of it is two places around that. Whatever
the reading saw, the moved rows must be those of the table at the place that is asked for, before or behind.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replica.errors import DataLossError, PrerequisiteError, ProtocolError, RelayError, SchemaError, StatementDmlError
from replica.protocol.constants import EventType, GtidFlag, HeaderFlag
from replica.protocol.gtid import Gtid
from replica.protocol.rows.table_map import parse_table_map
from replica.relay_log.location import RelayLocation, relay_number
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.rows.scan.scan import scan
from replica.rows.types.keys import key_bytes_of, key_part
from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.images import row_halves
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.reconcile.reconciler import reconciled
from replica.snapshot.reconcile.window import BackfillWindow, place_of
from replica.snapshot.rows.row_block import RowBlock, TableKey
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import COMPRESSED, INSERT, KINDS, UPDATE, Column, image, rows, table_map
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INSERTED, UPDATED, DELETED = range(3)
NAME = ("d", "t")
START = RelayLocation(1, 0)
COLUMNS = [Column("id", 3, nullable=False), Column("v", 15, struct.pack("<H", 40))]
WIDE = [COLUMNS[0], Column("v", 15, struct.pack("<H", 300))]  # images of other bytes: the length takes two
OURS = table_map(0, COLUMNS)
SCHEMA = TableSchema(
    database="d",
    table="t",
    columns=(
        ColumnSchema(name="id", data_type="int", column_type="int(11)", nullable=False, key=True),
        ColumnSchema(name="v", data_type="varchar", column_type="varchar(300)", charset="utf8mb4", octets=300),
    ),
    primary_key=(0,),
)
KEY = TableKey("PRIMARY", (0,), ordered=True)

Table = dict[int, str]
Change = tuple[int, int, int, str, str]  # operation, key before and after, value before and after


def encoded(key: int, value: str, columns: list[Column] = COLUMNS) -> bytes:
    prefix = 1 if columns is COLUMNS else 2
    return image([struct.pack("<i", key), len(value).to_bytes(prefix, "little") + value.encode()])


def key_of(key: int) -> bytes:
    part = key_part(0, parse_table_map(OURS).columns[0], SCHEMA.columns[0])
    return key_bytes_of([part], [struct.pack("<i", key)])


@dataclass
class History:
    """A stream, and what the table holds behind each of its groups."""

    primary: Primary = field(default_factory=Primary.dump)
    tables: list[Table] = field(default_factory=list)
    table: Table = field(default_factory=dict)
    open: dict[str, list[Change]] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=lambda: COLUMNS)
    images: str = "FULL"
    numbers: dict[int, int] = field(default_factory=dict)

    def next(self, domain: int) -> Gtid:
        self.numbers[domain] = self.numbers.get(domain, 0) + 1
        return Gtid(domain, 1, self.numbers[domain])

    @property
    def locked(self) -> set[int]:
        return {key for changes in self.open.values() for change in changes for key in change[1:3]}

    def changes(self, steps: Iterable[tuple[str, int, int]]) -> list[Change]:  # noqa: C901  (a line a kind of step)
        """Random steps made changes that the table allows."""
        table, locked, made = dict(self.table), self.locked, []

        def step(op: int, before: int, after: int, value: str) -> None:
            made.append((op, before, after, table.get(before, ""), value))
            if op != INSERTED:
                del table[before]
            if op != DELETED:
                table[after] = value

        for kind, one, two in steps:
            value = f"{kind}{len(self.tables)}.{len(made)}"
            if {one, two, 9, 10} & locked or 10 in table:
                continue
            if kind == "put":
                step(UPDATED if one in table else INSERTED, one, one, value)
            elif kind == "remove" and one in table:
                step(DELETED, one, one, "")
            elif kind == "again" and one in table:
                step(DELETED, one, one, "")
                step(INSERTED, one, one, value)
            elif kind == "brief" and one not in table:
                step(INSERTED, one, one, value)
                step(DELETED, one, one, "")
            elif kind == "move" and one in table and two not in table:
                step(UPDATED, one, two, value)
            elif kind == "swap" and one in table and two in table and one != two:
                step(UPDATED, one, 10, table[one])
                step(UPDATED, two, one, table[two])
                step(UPDATED, 10, two, table[10])
            elif kind == "shift" and not locked:
                for key in sorted(table, reverse=True):
                    if key < 8 and key + 1 not in table:
                        step(UPDATED, key, key + 1, table[key])
        return made

    def write(self, changes: list[Change], *, compressed: bool, noise: bool) -> None:
        """The events of these changes: neighbours of one kind share an event, other tables stand between."""
        at = 0
        while at < len(changes):
            op, end = changes[at][0], at + 1
            while end < len(changes) and changes[end][0] == op and self.images == "FULL":
                end += 1
            if noise:
                self.primary.event(EventType.TABLE_MAP, table_map(2, COLUMNS, table="u"))
                self.primary.event(INSERT, rows(2, 2, encoded(at, "u"), flags=0))
            images = b"".join(
                (encoded(before, old, self.columns) if op != INSERTED else b"")
                + (encoded(after, new, self.columns) if op != DELETED else b"")
                for _, before, after, old, new in changes[at:end]
            )
            told, told_after = [True] * 2, [True] * 2
            if self.images != "FULL":
                images, told, told_after = self.partial(*changes[at])
            if compressed:
                images = bodies.block(images)
            self.primary.event(EventType.TABLE_MAP, table_map(1, self.columns))
            kinds = COMPRESSED if compressed else KINDS
            self.primary.event(kinds[op], rows(1, 2, images, before=told, after=told_after if op == UPDATED else None))
            at = end

    def partial(self, op: int, before: int, after: int, old: str, new: str) -> tuple[bytes, list[bool], list[bool]]:
        """The images of one change as MINIMAL or FULL_NODUP has them, and which columns they hold."""
        nodup, set_ = self.images == "FULL_NODUP", [before != after, old != new]
        if not any(set_):
            set_ = [True, False]
        told = [True, nodup or op == INSERTED]
        held = [*self.values(after, new)] if op == INSERTED else self.values(before, old)
        images = image(list(compress(held, told)))
        return images + (image(list(compress(self.values(after, new), set_))) if op == UPDATED else b""), told, set_

    def values(self, key: int, value: str) -> list[bytes]:
        prefix = 1 if self.columns is COLUMNS else 2
        return [struct.pack("<i", key), len(value).to_bytes(prefix, "little") + value.encode()]

    def apply(self, changes: list[Change]) -> None:
        for op, before, after, _, value in changes:
            if op != INSERTED:
                del self.table[before]
            if op != DELETED:
                self.table[after] = value

    def done(self) -> None:
        self.tables.append(dict(self.table))

    def transaction(self, steps: Iterable[tuple[str, int, int]], domain: int, *, compressed: bool = False) -> None:
        changes = self.changes(steps)
        self.primary.begin(self.next(domain))
        self.write(changes, compressed=compressed, noise=bool(domain))
        self.primary.xid()
        self.apply(changes)
        self.done()

    def prepare(self, name: str, steps: Iterable[tuple[str, int, int]], domain: int) -> None:
        changes = self.changes(steps)
        self.primary.begin(self.next(domain), xa=name)
        self.write(changes, compressed=False, noise=False)
        self.primary.xa_prepared(name)
        self.open[name] = changes
        self.done()

    def end_xa(self, name: str, domain: int, *, commit: bool) -> None:
        changes = self.open.pop(name)
        self.primary.xa_end(name, "COMMIT" if commit else "ROLLBACK", self.next(domain))
        if commit:
            self.apply(changes)
        self.done()

    def log(self, directory: Path, *, max_file_bytes: int = 1 << 20) -> Log:
        with RelayWriter.open(directory, max_file_bytes=max_file_bytes) as relay:
            receive(relay, self.primary.wire())
            log, head = RelayLog(directory), relay.head.location
        places = []
        for part in log.ranges(START, head, 1 << 30):
            found = scan(open(part.path, "rb").read()[part.start : part.end], checksum=part.checksum)  # noqa: PTH123, SIM115
            places += [
                RelayLocation(relay_number(directory / part.path), part.start + end)
                for end in found.groups["end"].tolist()
            ]
        assert len(places) == len(self.tables)
        return Log(log, [START, *places], [{}, *self.tables])


class Log(NamedTuple):
    """A relay log, its group ends, and the table behind each."""

    log: RelayLog
    places: list[RelayLocation]
    tables: list[Table]

    def window(self, start: int, end: int, key: TableKey = KEY) -> BackfillWindow:
        return BackfillWindow.read(self.log, self.places[start], self.places[end], {NAME: key}, {NAME: SCHEMA})


def block(table: Table, begin: int | None, end: int | None) -> RowBlock:
    """The rows with keys in (begin, end], as they are read."""
    inside = sorted(key for key in table if (begin is None or key > begin) and (end is None or key <= end))
    images, keys = [encoded(key, table[key]) for key in inside], [key_of(key) for key in inside]
    return RowBlock(
        OURS,
        2,
        np.frombuffer(b"".join(images) or b"\0", np.uint8),
        np.cumsum([len(one) for one in images], dtype=np.int64),
        np.frombuffer(b"".join(keys) or b"\0", np.uint8),
        np.cumsum([len(one) for one in keys], dtype=np.int64),
    )


def content(blocks: list[RowBlock]) -> list[tuple[int, str]]:
    """The rows of blocks, each read as its own table map says."""
    found = []
    for one in blocks:
        columns = parse_table_map(one.table_map).columns
        assert one.width == len(columns)
        prefix = 1 if columns[1].length < 256 else 2
        for row in range(one.rows):
            data = one.image(row).tobytes()
            key = struct.unpack("<i", data[1:5])[0]
            assert int.from_bytes(data[5 : 5 + prefix], "little") == len(data) - 5 - prefix
            assert one.key(row) == key_of(key)
            found.append((key, data[5 + prefix :].decode()))
    return found


_step = st.tuples(
    st.sampled_from(["put", "put", "remove", "again", "brief", "move", "move", "swap", "shift"]),
    st.integers(0, 7),
    st.integers(0, 7),
)
_steps = st.lists(_step, max_size=5)
event_groups = st.lists(
    st.one_of(
        st.tuples(st.just("transaction"), _steps, st.booleans()),
        st.tuples(st.just("transaction"), _steps, st.booleans()),
        st.tuples(st.just("prepare"), _steps, st.sampled_from("xyz")),
        st.tuples(st.sampled_from(["commit", "rollback"]), st.sampled_from("xyz"), st.just(None)),
    ),
    min_size=1,
    max_size=14,
)


def history_of(groups: list[tuple[object, ...]], columns: list[Column], images: str = "FULL") -> History:
    history = History(columns=columns, images=images)
    for number, (what, one, two) in enumerate(groups):
        domain = number % 3
        match what:
            case "transaction":
                history.transaction(one, domain, compressed=bool(two))  # type: ignore[arg-type]
            case "prepare" if two not in history.open:
                history.prepare(str(two), one, domain)  # type: ignore[arg-type]
            case "commit" | "rollback" if one in history.open:
                history.end_xa(str(one), domain, commit=what == "commit")
    history.transaction([("put", 1, 1)], 0)
    return history


@pytest.mark.parametrize("columns", [COLUMNS, WIDE], ids=["one map", "two maps"])
@pytest.mark.parametrize("mapped", [False, True])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=event_groups, data=st.data())
def test_a_chunk_is_the_table_at_any_place(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[Column],
    groups: list[tuple[object, ...]],
    data: st.DataObject,
    *,
    mapped: bool,
) -> None:
    monkeypatch.setattr(row_halves, "COPIED_BYTES", 0 if mapped else 1 << 20)
    known = history_of(groups, columns).log(tmp_path_factory.mktemp("log"), max_file_bytes=2000)
    last = len(known.places) - 1
    lower, seen, upper = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    begin, end = sorted(data.draw(st.tuples(st.integers(-1, 8), st.integers(-1, 11))))
    borders = data.draw(st.sampled_from([(begin, end), (None, end), (begin, None), (None, None)]))
    chunk = block(known.tables[seen], *borders)
    keys = [None if border is None else key_of(border) for border in borders]
    for place in range(last + 1):
        window = known.window(min(lower, place), max(upper, place))
        states = window.state_at(NAME, known.places[lower], known.places[place])
        assert content(reconciled(chunk, states, *keys)) == content([block(known.tables[place], *borders)])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=event_groups, data=st.data())
def test_without_an_order_the_touched_rows_come_once_and_last(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[object, ...]], data: st.DataObject
) -> None:
    known = history_of(groups, COLUMNS).log(tmp_path_factory.mktemp("log"))
    last = len(known.places) - 1
    lower, seen, upper = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    place, border = data.draw(st.integers(0, last)), data.draw(st.integers(-1, 8))
    window = known.window(min(lower, place), max(upper, place), TableKey("PRIMARY", (0,), ordered=False))
    states = window.state_at(NAME, known.places[lower], known.places[place])
    first, second = block(known.tables[seen], None, border), block(known.tables[seen], border, None)
    blocks = [*reconciled(first, states, None, None, puts=False), *reconciled(second, states, None, None)]
    assert sorted(content(blocks)) == sorted(known.tables[place].items())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=event_groups, data=st.data())
def test_a_window_that_grew_and_forgot_knows_the_same(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[object, ...]], data: st.DataObject
) -> None:
    known = history_of(groups, COLUMNS).log(tmp_path_factory.mktemp("log"), max_file_bytes=2000)
    last = len(known.places) - 1
    first, start, place = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    whole = known.window(first, last)
    later = data.draw(st.integers(place, last))
    grown = BackfillWindow(known.log, known.places[first], {NAME: KEY}, {NAME: SCHEMA}, max_bytes=whole.size + 1)
    for step in range(first, last + 1):
        grown.extend(known.places[step], settled=known.places[place])
    assert grown.size <= whole.size
    grown.trim(known.places[start])
    one, other = (window.state_at(NAME, known.places[start], known.places[later]) for window in (grown, whole))
    assert [(one.key(n), one.image(n)) for n in range(len(one))] == [
        (other.key(n), other.image(n)) for n in range(len(other))
    ]


def test_a_window_that_is_half_full_keeps_one_change_a_key(tmp_path: Path) -> None:
    history = History()
    for _ in range(200):
        history.transaction([("put", 1, 1), ("put", 2, 2)], 0, compressed=True)
    known = history.log(tmp_path)
    window = BackfillWindow(known.log, known.places[0], {NAME: KEY}, {NAME: SCHEMA}, max_bytes=8000)
    for place in known.places:
        window.extend(place, settled=known.places[-1])
    states = window.state_at(NAME, known.places[0], known.places[-1])
    assert [states.image(n) for n in range(len(states))] == [
        encoded(key, value) for key, value in sorted(known.tables[-1].items())
    ]
    with pytest.raises(RelayError, match="take more than 8000 bytes"):
        BackfillWindow(known.log, known.places[0], {NAME: KEY}, {NAME: SCHEMA}, max_bytes=8000).extend(known.places[-1])


def test_what_nothing_touched_is_the_chunk_itself(tmp_path: Path) -> None:
    history = History()
    history.transaction([("put", 1, 1), ("put", 5, 5)], 0)
    history.transaction([("put", 5, 5)], 0)
    known = history.log(tmp_path)
    chunk = block(known.tables[1], None, 3)
    states = known.window(1, 2).state_at(NAME, known.places[1], known.places[2])
    assert reconciled(chunk, states, None, key_of(3)) == [chunk]
    assert reconciled(chunk, states, None, key_of(3))[0] is chunk


def test_rows_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    history = History()
    history.transaction([("put", 1, 1)], 0)
    known = history.log(tmp_path)
    chunk = block({3: "a", 4: "b"}, None, None)
    chunk = RowBlock(OURS, 2, chunk.images, chunk.ends, chunk.keys[::-1].copy(), chunk.key_ends)
    states = known.window(0, 1).state_at(NAME, known.places[0], known.places[1])
    with pytest.raises(ProtocolError, match=r"row 1 of a result in the order of the key of d\.t does not"):
        reconciled(chunk, states, None, None)


def partial_log(directory: Path, before: list[bool], after: list[bool], images: bytes) -> Log:
    history = History()
    history.transaction([("put", 1, 1)], 0)
    history.primary.begin(history.next(0))
    history.primary.event(EventType.TABLE_MAP, table_map(1, COLUMNS))
    history.primary.event(UPDATE, rows(1, 2, images, before=before, after=after))
    history.primary.xid()
    history.done()
    return history.log(directory)


def test_partial_images_tell_nothing_of_what_was_before(tmp_path: Path) -> None:
    """binlog_row_image=MINIMAL: the key before, what was set after."""
    number = struct.pack("<i", 1)
    known = partial_log(tmp_path, [True, False], [False, True], image([number]) + image([b"\1x"]))
    window = known.window(0, 2)
    assert window.lacks_columns(NAME, known.places[1], known.places[2])
    assert not window.lacks_columns(NAME, known.places[0], known.places[1])
    with pytest.raises(PartialRowError) as refused:
        window.state_at(NAME, known.places[1], known.places[1])
    assert refused.value.place == place_of(known.places[2])
    error = window.missing_images_error(NAME, refused.value.place, key=False)
    assert "transaction 0-1-2 contain only some columns of a row of d.t" in error.message
    assert window.state_at(NAME, known.places[0], known.places[1]).image(0) is not None  # an earlier change decides
    before = window.state_at(NAME, known.places[1], known.places[1], known.places[1])
    assert len(before) == 0  # what comes behind a reading did nothing to it
    assert len(window.state_at(NAME, known.places[2], known.places[2])) == 0


def test_images_without_the_key_are_refused(tmp_path: Path) -> None:
    known = partial_log(tmp_path, [False, True], [False, True], image([b"\1a"]) + image([b"\1b"]))
    with pytest.raises(PrerequisiteError, match=r"transaction 0-1-2 do not contain the key of a row of d\.t"):
        known.window(0, 2).state_at(NAME, known.places[0], known.places[2])


def test_a_table_map_without_the_key_is_refused_only_where_it_matters(tmp_path: Path) -> None:
    history = History()
    history.primary.begin(history.next(0))
    history.primary.event(EventType.TABLE_MAP, table_map(1, COLUMNS[1:]))
    history.primary.event(INSERT, rows(1, 1, image([b"\1a"])))
    history.primary.xid()
    history.done()
    history.transaction([("put", 1, 1)], 0)
    known = history.log(tmp_path)
    window = known.window(0, 2)
    with pytest.raises(SchemaError, match="no column id"):
        window.state_at(NAME, known.places[0], known.places[2])
    assert len(window.state_at(NAME, known.places[1], known.places[2])) == 1


def test_a_table_that_is_made_anew_with_another_key_behind_a_reading_does_not_disturb_it(tmp_path: Path) -> None:
    """The window goes on, for the sake of other tables, to changes that its key does not fit; and they come again in
    front, as the table was before.
    """
    history = History()

    def another() -> None:
        history.primary.begin(history.next(0))
        history.primary.event(EventType.TABLE_MAP, table_map(1, COLUMNS[1:]))
        history.primary.event(INSERT, rows(1, 1, image([b"\1a"])))
        history.primary.xid()
        history.done()

    another()
    history.transaction([("put", 1, 1)], 0)
    history.transaction([("put", 2, 2)], 0)
    another()
    known = history.log(tmp_path)
    window, places = known.window(0, 4), known.places
    for until in (places[2], places[3]):
        states = window.state_at(NAME, places[1], places[2], until)
        assert [states.key(n) for n in range(len(states))] == [key_of(1), key_of(2)][: 1 + (until == places[3])]
        assert len(window.changes(NAME, places[1], until)) == 1 + (until == places[3])
    for lost in (
        lambda: window.state_at(NAME, places[1], places[2]),
        lambda: window.state_at(NAME, places[1], places[2], places[4]),
        lambda: window.changes(NAME, places[1], places[4]),
        lambda: window.changes(NAME, places[0], places[3]),
    ):
        with pytest.raises(SchemaError, match="no column id"):
            lost()


def test_rows_of_a_transaction_that_was_prepared_long_before(tmp_path: Path) -> None:
    history = History()
    history.transaction([("put", 1, 1)], 0)
    history.prepare("x", [("move", 1, 2)], 0)
    for _ in range(20):
        history.transaction([("put", 5, 5)], 1)
    history.end_xa("x", 0, commit=True)
    known = history.log(tmp_path, max_file_bytes=1000)
    last = len(known.places) - 1
    states = known.window(last - 1, last).state_at(NAME, known.places[last - 1], known.places[last])
    assert [(states.key(n), bool(states.present[n])) for n in range(2)] == [(key_of(1), False), (key_of(2), True)]


def test_an_xa_commit_without_its_rows_may_be_of_any_table(tmp_path: Path) -> None:
    history = History()
    history.transaction([("put", 1, 1)], 0)
    history.primary.xa_end("unknown", "COMMIT", history.next(0))
    history.done()
    history.transaction([("put", 2, 2)], 0)
    known = history.log(tmp_path)
    window = known.window(0, 3)
    with pytest.raises(DataLossError, match="0-1-2 commits the XA transaction"):
        window.state_at(NAME, known.places[1], known.places[3])
    assert len(window.state_at(NAME, known.places[2], known.places[3])) == 1


def test_a_temporary_table_of_the_same_name_is_another(tmp_path: Path) -> None:
    history = History()
    for text, flags in (
        (b"CREATE TEMPORARY TABLE t (a INT)", GtidFlag.STANDALONE | GtidFlag.DDL),
        (b"UPDATE t SET v = 1", GtidFlag.TRANSACTIONAL),
        (b"DROP TEMPORARY TABLE t", GtidFlag.STANDALONE | GtidFlag.DDL),
        (b"UPDATE t SET v = 1", GtidFlag.TRANSACTIONAL),
    ):
        history.primary.gtid(history.next(0), flags)
        history.primary.event(EventType.QUERY, bodies.query(text, b"d"), flags=HeaderFlag.THREAD_SPECIFIC)
        if not flags & GtidFlag.STANDALONE:
            history.primary.xid()
        history.done()
    known = history.log(tmp_path)
    window = known.window(1, 3)
    assert len(window.state_at(NAME, known.places[1], known.places[2])) == 0
    window.extend(known.places[4])
    with pytest.raises(StatementDmlError, match="0-1-4"):
        window.state_at(NAME, known.places[1], known.places[2])
    assert not window.ddl(NAME, known.places[0], known.places[4])


def test_a_purged_start_and_a_full_window_are_errors(tmp_path: Path) -> None:
    history = History()
    for _ in range(10):
        history.transaction([("put", 1, 1)], 0)
    known = history.log(tmp_path, max_file_bytes=600)
    full = BackfillWindow(known.log, known.places[0], {NAME: KEY}, {NAME: SCHEMA}, max_bytes=100)
    with pytest.raises(RelayError, match=r"changes between the snapshot of d\.t and the stream take more"):
        full.extend(known.places[-1])
    known.log.purge_before(known.places[-1])
    with pytest.raises(DataLossError):
        known.window(0, 10)


def test_the_window_does_not_answer_for_what_lies_before_it(tmp_path: Path) -> None:
    history = History()
    for _ in range(3):
        history.transaction([("put", 1, 1)], 0)
    known = history.log(tmp_path)
    with pytest.raises(ValueError, match="the window begins at"):
        known.window(2, 3).state_at(NAME, known.places[1], known.places[3])


def with_text(directory: Path, *texts: bytes, flags: int = GtidFlag.STANDALONE | GtidFlag.DDL) -> Log:
    history = History()
    history.transaction([("put", 1, 1)], 0)
    for text in texts:
        history.primary.gtid(history.next(0), flags)
        history.primary.query(text)
        if not flags & GtidFlag.STANDALONE:
            history.primary.xid()
        history.done()
    return history.log(directory)


@pytest.mark.parametrize(
    "text",
    [
        b"ALTER TABLE t ADD COLUMN x INT",
        b"CREATE OR REPLACE TABLE t (a INT)",
        b"TRUNCATE TABLE d.t",
        b"TRUNCATE t",
        b"DROP TABLE a, t",
        b"RENAME TABLE t TO u",
        b"RENAME TABLE t TO _t_del, _t_gho TO t",
        b"ALTER TABLE other RENAME TO t",
        b"ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t",
        b"ALTER TABLE t DROP PARTITION p0",
        b"DROP DATABASE d",
        b"CREATE OR REPLACE DATABASE d",
        b"DROP INDEX PRIMARY ON t",
        b"CREATE UNIQUE INDEX i ON t (a)",
        b"ALTER TABLE t gibberish (",
        b"SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE t FORCE",
    ],
)
def test_ddl_that_may_be_about_the_table(tmp_path: Path, text: bytes) -> None:
    known = with_text(tmp_path, text)
    window = known.window(0, 2)
    first, before, behind = known.places
    assert window.ddl(NAME, before, behind)
    assert window.ddl(NAME, first, behind)
    assert not window.ddl(NAME, first, before)
    assert not window.ddl(NAME, behind, behind)


@pytest.mark.parametrize(
    "text",
    [
        b"ALTER TABLE other ADD COLUMN x INT",
        b"ALTER TABLE D.T ADD COLUMN x INT",  # another table on this server, which tells names apart by case
        b"CREATE TABLE e.t (a INT)",
        b"DROP DATABASE e",
        b"CREATE DATABASE d",
        b"CREATE TEMPORARY TABLE t (a INT)",
        b"CREATE VIEW v AS SELECT * FROM t",
        b"GRANT SELECT ON d.t TO someone",
        b"ANALYZE TABLE t",
    ],
)
def test_ddl_that_is_not(tmp_path: Path, text: bytes) -> None:
    known = with_text(tmp_path, text)
    assert not known.window(0, 2).ddl(NAME, known.places[0], known.places[2])


def test_changes_that_were_logged_as_statements_are_refused_by_transaction(tmp_path: Path) -> None:
    known = with_text(tmp_path, b"UPDATE t SET v = 1", b"UPDATE u SET v = 1", flags=GtidFlag.TRANSACTIONAL)
    window = known.window(0, 3)
    with pytest.raises(StatementDmlError, match=r"0-1-2 may have changed rows of d\.t.*binlog_format"):
        window.state_at(NAME, known.places[1], known.places[2])
    assert len(window.state_at(NAME, known.places[2], known.places[3])) == 0
    assert not window.ddl(NAME, known.places[0], known.places[3])


def test_changes_that_were_logged_as_statements_may_count_as_ddl(tmp_path: Path) -> None:
    known = with_text(tmp_path, b"UPDATE t SET v = 1", b"UPDATE u SET v = 1", flags=GtidFlag.TRANSACTIONAL)
    places, (keys, schemas) = known.places, ({NAME: KEY}, {NAME: SCHEMA})
    window = BackfillWindow.read(known.log, places[0], places[3], keys, schemas, statement_dml_defines=True)
    assert window.ddl(NAME, places[1], places[2])
    assert not window.ddl(NAME, places[2], places[3])
    assert len(window.state_at(NAME, places[1], places[2])) == 0


@pytest.mark.parametrize(("verb", "counts"), [("COMMIT", True), ("ROLLBACK", False)])
@pytest.mark.parametrize("before", [True, False])
def test_statements_of_an_xa_transaction_count_where_it_is_committed(
    tmp_path: Path, verb: str, *, counts: bool, before: bool
) -> None:
    history = History()
    history.primary.begin(history.next(0), xa="x")
    history.primary.query(b"DELETE FROM t")
    history.primary.xa_prepared("x")
    history.done()
    history.transaction([], 0)
    history.primary.xa_end("x", verb, history.next(0))
    history.done()
    known = history.log(tmp_path)
    window = known.window(2 if before else 0, 3)
    if counts:
        with pytest.raises(StatementDmlError, match="0-1-3"):
            window.state_at(NAME, known.places[2], known.places[3])
    else:
        assert len(window.state_at(NAME, known.places[2], known.places[3])) == 0


@pytest.mark.parametrize("images", ["FULL", "MINIMAL"])
def test_images_are_made_without_columns_that_are_not_wanted(tmp_path: Path, images: str) -> None:
    history = History(images=images)
    history.transaction([("put", 1, 1), ("put", 2, 2), ("put", 3, 3)], 0)
    history.transaction([("remove", 2, 2), *([("put", 3, 3)] * (images == "FULL"))], 0)
    known = history.log(tmp_path)
    narrow = replace(SCHEMA, columns=SCHEMA.columns[:1])
    window = BackfillWindow.read(
        *(known.log, known.places[0], known.places[-1], {NAME: KEY}, {NAME: narrow}), defined={NAME: SCHEMA}
    )
    for place, there in ((1, (1, 2, 3)), (2, (1, 3))):
        states = window.state_at(NAME, known.places[0], known.places[place])
        found = {states.key(number): states.image(number) for number in range(len(states))}
        assert found == {key_of(key): image([struct.pack("<i", key)]) if key in there else None for key in (1, 2, 3)}
