"""The walk over random histories, beside a model of the server: what it finds is what cascaded, or it says so."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.protocol.gtid import Gtid, GtidPosition
from replica.snapshot.check.facts import Cascade
from streaming_source.mirroring.batch.batch_facts import TableChanges
from streaming_source.mirroring.batch.manifest import DELETES, INSERTS, UPDATES, TableMapRun
from streaming_source.mirroring.foreign_keys.keys import links_by_parent
from streaming_source.mirroring.foreign_keys.lost_values import Lost, latest_losses
from streaming_source.mirroring.foreign_keys.stale_rows import Stale
from streaming_source.mirroring.foreign_keys.walk import CascadeWalk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.foreign_keys.keys import Link

COLUMNS = ("id", "a", "b")
"""Each table has a key and two columns that may refer to keys."""
Row = tuple[int, int | None, int | None]


class Event(NamedTuple):
    table: TableName
    op: str
    before: Row | None
    after: Row | None
    place: tuple[int, int]


@dataclass
class Server:
    """Tables with foreign keys that are checked, as InnoDB does it, and the events that it logs."""

    keys: dict[TableName, list[Cascade]]
    tables: dict[TableName, dict[int, Row]]
    events: list[Event] = field(default_factory=list)
    number: int = 0
    seen: list[dict[TableName, dict[int, Row]]] = field(default_factory=list)
    """The tables behind each statement that changed something."""

    def insert(self, name: TableName, row: Row) -> None:
        if row[0] in self.tables[name] or not self._names_rows(name, row):
            return
        self.tables[name][row[0]] = row
        self._log(name, "insert", None, row)

    def update(self, name: TableName, key: int, row: Row) -> None:
        if key not in self.tables[name] or row[0] != key or not self._names_rows(name, row):
            return
        before = self.tables[name][key]
        self.tables[name][key] = row
        self._log(name, "update", before, row)

    def delete(self, name: TableName, key: int) -> None:
        if key in self.tables[name]:
            before = self.tables[name][key]
            self._take(name, key)
            self._log(name, "delete", before, None)

    def _take(self, name: TableName, key: int) -> None:
        del self.tables[name][key]
        for child, some in self.keys.items():
            for one in some:
                if one.parent != name:
                    continue
                column = COLUMNS.index(one.columns[0])
                for row in [row for row in self.tables[child].values() if row[column] == key]:
                    if row[0] not in self.tables[child]:
                        continue
                    if one.actions[0].endswith("CASCADE"):
                        self._take(child, row[0])
                    else:
                        now = list(self.tables[child][row[0]])
                        now[column] = None
                        self.tables[child][row[0]] = tuple(now)  # type: ignore[assignment]

    def _names_rows(self, name: TableName, row: Row) -> bool:
        for one in self.keys.get(name, ()):
            value = row[COLUMNS.index(one.columns[0])]
            if value is not None and value not in self.tables[one.parent] and (one.parent, value) != (name, row[0]):
                return False
        return True

    def _log(self, name: TableName, op: str, before: Row | None, after: Row | None) -> None:
        self.number += 1
        self.events.append(Event(name, op, before, after, (self.number, 0)))
        self.seen.append(copy.deepcopy(self.tables))


class Table(NamedTuple):
    versioned: bool = False


class Control(NamedTuple):
    table: Table = Table()
    mode: str = "current"
    keys: tuple[str, ...] = ("id",)
    live: bool = True
    state: str = "current"
    rows: int = 1


class Batch:
    """What a walk asks of the rows of a batch, of plain Python."""

    def __init__(self, targets: dict[TableName, dict[int, Row]], events: list[Event]) -> None:
        self.targets = targets
        self.events = events
        self.modes: dict[TableName, str] = {}
        self.altered_tables: set[TableName] = set()

    def of(self, name: TableName) -> Control | None:
        return Control(mode=self.modes.get(name, "current")) if name in self.targets else None

    def changes(self, name: TableName) -> TableChanges:
        places = [event.place for event in self.events if event.table == name]
        maps = (TableMapRun(b"", min(places), max(places), read=False, fault=""),) if places else ()
        return TableChanges(changes=len(places), domains=1, maps=maps)

    def touched(self, name: TableName) -> int:
        bits = {"insert": INSERTS, "update": UPDATES, "delete": DELETES}
        found = 0
        for event in self.events:
            if event.table == name:
                found |= bits[event.op]
        return found

    def altered(self, name: TableName) -> bool:
        return name in self.altered_tables

    def lost(self, name: TableName, columns: Sequence[str], event: str) -> Lost:
        assert event == "DELETE"
        return self._losses(name, columns, "delete", "before")

    def inserted(self, name: TableName, columns: Sequence[str]) -> Lost:
        return self._losses(name, columns, "insert", "after")

    def stale(self, parent: TableName, link: Link, lost: Lost, shown: Sequence[str]) -> Stale:  # noqa: ARG002
        column = COLUMNS.index(link.key.columns[0])
        values = lost.values.column("v0").to_pylist()
        rows = [row for row in self.targets[link.child].values() if row[column] in values]
        columns = {"k0": [row[0] for row in rows]}
        columns |= {f"r{n}": [row[COLUMNS.index(name)] for row in rows] for n, name in enumerate(shown)}
        table = pa.table({name: pa.array(each, pa.int64()) for name, each in columns.items()})
        return Stale(
            table, [(row[0],) for row in rows], [values.index(row[column]) for row in rows], [True] * len(rows)
        )

    def changed(self, name: TableName, stale: Stale) -> dict[Any, Any]:  # noqa: ARG002
        found: dict[Any, Any] = {}
        for event in self.events:
            for image in (event.before, event.after):
                if event.table == name and image is not None:
                    found[image[:1]] = event.place, {0}
        return found

    def filtered(self, name: TableName) -> bool:  # noqa: ARG002
        return False

    def orphans(self, parent: TableName, link: Link, shown: Sequence[str]) -> Stale:
        column = COLUMNS.index(link.key.columns[0])
        there = {row[column] for row in self.targets[link.child].values()} - self.targets[parent].keys() - {None}
        values = pa.table({"v0": pa.array(sorted(there), pa.int64())})
        nothing: list[Any] = []
        lost = Lost(values, nothing, nothing, nothing)
        return self.stale(parent, link, lost, shown)._replace(lost=[0] * len(self.targets[link.child]))

    def target_names(self, name: TableName, columns: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        return columns

    def _losses(self, name: TableName, columns: Sequence[str], op: str, side: str) -> Lost:
        events = [event for event in self.events if event.table == name and event.op == op]
        images = [getattr(event, side) for event in events]
        values = {f"v{n}": [image[COLUMNS.index(c)] for image in images] for n, c in enumerate(columns)}
        table = pa.table(
            {name: pa.array(each, pa.int64()) for name, each in values.items()}
            | {
                "number": pa.array([event.place[0] for event in events], pa.int64()),
                "ordinal": pa.array([0] * len(events), pa.int64()),
                "domain": pa.array([0] * len(events), pa.int64()),
                "gtid": pa.array([f"0-1-{event.place[0]}" for event in events], pa.string()),
                "committed": pa.array([0] * len(events), pa.timestamp("us", "UTC")),
            }
        )
        return latest_losses(table, len(columns))


NAMES = [("d", name) for name in "pqrs"]
ROWS = st.integers(1, 5)


@st.composite
def foreign_keys(draw: st.DrawFn) -> dict[TableName, list[Cascade]]:
    found = {}
    for place, name in enumerate(NAMES):
        some = []
        for column in COLUMNS[1:]:
            # Most tables refer to the one before: levels are what this is about.
            parent = draw(st.sampled_from([None, *NAMES[: place + 1], *NAMES[max(0, place - 1) : place] * 3]))
            if parent is not None:
                action = draw(st.sampled_from(["ON DELETE CASCADE", "ON DELETE CASCADE", "ON DELETE SET NULL"]))
                some.append(Cascade(f"{name[1]}_{column}", parent, (action,), (column,), ("id",)))
        found[name] = some
    return found


VALUE = st.sampled_from([None, 1, 2, 3, 4, 5])
FILLED = st.lists(st.tuples(VALUE, VALUE), min_size=20, max_size=20)
"""What the rows 1 to 5 of each table refer to at first."""
OPERATION = st.tuples(
    st.sampled_from(["insert", "update", "delete"]),
    st.sampled_from(NAMES),
    ROWS,
    VALUE,
    VALUE,
)


def filled(keys: dict[TableName, list[Cascade]], rows: list[tuple[int | None, int | None]]) -> Server:
    server = Server(keys, {name: {} for name in NAMES})
    for place, row in enumerate(rows):
        server.insert(NAMES[place // 5], (1 + place % 5, *row))
    server.events.clear()
    server.seen = [copy.deepcopy(server.tables)]
    return server


def do(server: Server, operation: tuple[str, TableName, int, int | None, int | None]) -> None:
    what, name, key, a, b = operation
    if what == "insert":
        server.insert(name, (key, a, b))
    elif what == "update":
        server.update(name, key, (key, a, b))
    else:
        server.delete(name, key)


@settings(max_examples=300)
@given(foreign_keys(), FILLED, st.lists(OPERATION, max_size=25))
def test_targets_are_what_the_server_has_or_are_told_to_be_read_again(
    keys: dict[TableName, list[Cascade]], before: list[tuple[int | None, int | None]], during: list[Any]
) -> None:
    server = filled(keys, before)
    targets = copy.deepcopy(server.tables)
    for operation in during:
        do(server, operation)
    merge(targets, server.events)
    walk = walked(keys, targets, server.events)
    change(targets, walk)
    for name in NAMES:
        if name not in walk.missed:
            assert targets[name] == server.tables[name], (name, walk.missed)


def test_rows_go_at_all_levels_and_in_a_table_that_refers_to_itself() -> None:
    p, q, r, s = NAMES
    keys = {
        p: [],
        q: [Cascade("q_a", p, ("ON DELETE CASCADE",), ("a",), ("id",))],
        r: [
            Cascade("r_a", q, ("ON DELETE CASCADE",), ("a",), ("id",)),
            Cascade("r_b", r, ("ON DELETE CASCADE",), ("b",), ("id",)),
        ],
        s: [Cascade("s_a", r, ("ON DELETE SET NULL",), ("a",), ("id",))],
    }
    server = Server(keys, {p: {1: (1, None, None)}, q: {1: (1, 1, None), 2: (2, None, None)}, r: {}, s: {}})
    server.tables[r] = {1: (1, 1, None), 2: (2, None, 1), 3: (3, 2, 2), 4: (4, 2, None)}
    server.tables[s] = {1: (1, 3, 7), 2: (2, 4, 7)}
    targets = copy.deepcopy(server.tables)
    server.delete(p, 1)
    server.insert(s, (3, None, None))
    merge(targets, server.events)
    walk = walked(keys, targets, server.events)
    assert walk.missed == {}
    assert {name: found.deleted for name, found in walk.found.items()} == {q: {(1,)}, r: {(1,), (2,), (3,)}, s: set()}
    assert walk.found[s].nulls == {(1,): {"a"}}
    change(targets, walk)
    assert targets == server.tables


@pytest.mark.parametrize("way", ["not selected", "append_log"])
def test_rows_below_a_table_that_has_no_target_are_not_taken_for_equal(way: str) -> None:
    p, q, r, s = NAMES
    keys = {
        q: [Cascade("q_a", p, ("ON DELETE CASCADE",), ("a",), ("id",))],
        r: [Cascade("r_a", q, ("ON DELETE CASCADE",), ("a",), ("id",))],
        s: [Cascade("s_a", q, ("ON DELETE SET NULL",), ("a",), ("id",))],
    }
    server = Server(keys, {p: {1: (1, None, None)}, q: {1: (1, 1, None)}, r: {1: (1, 1, None)}, s: {1: (1, 1, None)}})
    targets = copy.deepcopy(server.tables)
    server.delete(p, 1)
    merge(targets, server.events)
    batch = Batch(targets, server.events)
    if way == "append_log":
        batch.modes[q] = "append_log"
    else:
        del targets[q]
    walk = walk_of(keys, batch)
    assert walk.found == {}
    assert set(walk.missed) == {r, s}


def merge(targets: dict[TableName, dict[int, Row]], events: list[Event]) -> None:
    """Bring the changes in, as a MERGE of the last change of each key does."""
    for event in events:
        image = event.after or event.before
        assert image is not None
        targets[event.table].pop(image[0], None)
        if event.after is not None:
            targets[event.table][image[0]] = event.after


@settings(max_examples=300)
@given(foreign_keys(), FILLED, st.lists(OPERATION, max_size=25), st.data())
def test_rows_that_were_read_meanwhile_are_what_the_server_has_or_are_told_to_be_read_again(
    keys: dict[TableName, list[Cascade]],
    before: list[tuple[int | None, int | None]],
    during: list[Any],
    data: st.DataObject,
) -> None:
    """Each row is read at a moment of its own, and brought to the end by the changes from a moment before that on; the
    first tables may be right already, as all above them is, too.
    """
    server = filled(keys, before)
    for operation in during:
        do(server, operation)
    last = len(server.events)
    targets: dict[TableName, dict[int, Row]] = {name: {} for name in NAMES}
    moments = data.draw(st.lists(st.integers(0, last), min_size=1, max_size=7), label="moments")
    early = data.draw(st.integers(0, 3), label="seen again")
    right = data.draw(st.integers(0, 3), label="tables that are right")
    targets |= {name: copy.deepcopy(server.tables[name]) for name in NAMES[:right]}
    for place, name in list(enumerate(NAMES))[right:]:
        for key in range(1, 6):
            seen = moments[(5 * place + key) % len(moments)]
            some = {key: row} if (row := server.seen[seen][name].get(key)) is not None else {}
            moved = {name: some}
            since = [event for event in server.events[max(0, seen - early) :] if event.table == name]
            merge(moved, [event for event in since if (event.after or event.before or (0,))[0] == key])
            targets[name] |= moved[name]
    end = GtidPosition((Gtid(0, 1, server.number),))
    began = {name: end if place < right else GtidPosition() for place, name in enumerate(NAMES)}
    batch = Batch(targets, server.events)
    batch.altered_tables = {name for name in NAMES if data.draw(st.booleans(), label=f"{name[1]} altered")}
    walk = walk_of(keys, batch, began)
    change(targets, walk)
    for name in NAMES:
        if name not in walk.missed:
            assert targets[name] == server.tables[name], (name, walk.missed)


def test_a_table_that_was_right_behind_all_changes_of_an_altered_one_is_not_doubted() -> None:
    keys = {NAMES[1]: [Cascade("fk", NAMES[0], ("ON DELETE CASCADE",), (COLUMNS[1],), ("id",))]}
    events = [Event(NAMES[0], "delete", (1, None, None), None, (5, 0))]
    for seq_no, missed in ((4, {NAMES[1]}), (5, set())):
        batch = Batch({NAMES[0]: {}, NAMES[1]: {7: (7, None, None)}}, events)
        batch.altered_tables = {NAMES[0]}
        walk = walk_of(keys, batch, dict.fromkeys(NAMES, GtidPosition((Gtid(0, 1, seq_no),))))
        assert walk.missed.keys() == missed


def test_rows_below_a_table_that_was_right_and_altered_are_looked_at() -> None:
    """Those of the last table were read before the rows above them went, and no change says so."""
    first, middle, last = NAMES[0], NAMES[1], NAMES[3]
    keys = {
        child: [Cascade("fk", parent, ("ON DELETE CASCADE",), (COLUMNS[2],), ("id",))]
        for child, parent in ((middle, first), (last, middle))
    }
    events = [Event(first, "delete", (2, None, None), None, (5, 0))]
    began = {first: GtidPosition((Gtid(0, 1, 5),)), middle: GtidPosition((Gtid(0, 1, 5),)), last: GtidPosition()}
    for altered in (middle, None):
        targets: dict[TableName, dict[int, tuple[int, int | None, int | None]]]
        targets = {name: {} for name in NAMES} | {last: {5: (5, None, 4)}}
        batch = Batch(targets, events)
        batch.altered_tables = {middle} if altered else set()
        walk = walk_of(keys, batch, began)
        change(targets, walk)
        assert (walk.missed.keys(), targets[last] != {}) == (({last}, True) if altered else (set(), False))


def walked(
    keys: dict[TableName, list[Cascade]], targets: dict[TableName, dict[int, Row]], events: list[Event]
) -> CascadeWalk:
    return walk_of(keys, Batch(targets, events))


def walk_of(
    keys: dict[TableName, list[Cascade]], batch: Batch, began: Mapping[TableName, GtidPosition] = {}
) -> CascadeWalk:
    walk = CascadeWalk(batch, links_by_parent(keys), set(batch.targets), began)  # type: ignore[arg-type]
    walk.go({name: batch.touched(name) for name in NAMES})
    return walk


def change(targets: dict[TableName, dict[int, Row]], walk: CascadeWalk) -> None:
    """Change what was found."""
    for name, found in walk.found.items():
        for key, columns in found.nulls.items():
            row = dict(zip(COLUMNS, targets[name][key[0]], strict=True)) | dict.fromkeys(columns)
            targets[name][key[0]] = tuple(row.values())  # type: ignore[assignment]
        for key in found.deleted:
            del targets[name][key[0]]
