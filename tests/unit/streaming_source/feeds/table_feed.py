"""Tables that are read beside a stream, without a server: what they hold at each place follows from the stream itself.

`FakeTables` answers a planner as what reads tables does, with a chunk of some rows at a time; it forgets everything at
a restart but what the frontier says. Table d.t has rows of its own and those that the stream inserts, d.a is empty, and
d.u has a few. `Sink` applies rows strictly: an insert of what is there is a failure.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from replica.errors import KeyChangedError
from replica.protocol.constants import ChecksumAlgorithm, EventType, GtidFlag
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.gtid import Gtid
from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.schema.table import ColumnSchema
from replica.snapshot.frontier import NOTHING, Frontier
from replica.snapshot.snapshot import Advance, SnapshotProgress
from replica.snapshot.spool.batches import SpoolPart
from streaming_source.planning.admission import Admission, BatchLimits
from streaming_source.planning.definitions.remembered_selection import RememberedSelection, selection_of
from streaming_source.planning.definitions.statement_dml import StatementDml
from streaming_source.planning.planner import ChangePlanner
from streaming_source.planning.tables.table_rows import SnapshotRows
from streaming_source.ranges.cutting import Origin, RangeCutter, origin_of
from streaming_source.rows.reader import read_changes, tables_with_other_keys
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog import bodies
from tests.kit.binlog.real_rows import images
from tests.kit.binlog.rows import INSERT, Column, rows, table_map
from tests.kit.relay.driving import receive
from tests.unit.streaming_source.feeds.relay_feed import history
from tests.unit.streaming_source.feeds.row_feed import PLAN, Group, RowFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.table import TableSchema
    from replica.snapshot.chunks.schedule import ReadLimit
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import RequestFolder
    from streaming_source.options.reading_options import ResnapshotOption
    from streaming_source.rows.partition import ChangePartition

A, T, U = ("d", "a"), ("d", "t"), ("d", "u")
CATALOG: dict[tuple[str, str], TableSchema] = dict.fromkeys((A, T, U))  # type: ignore[assignment]
TABLES = SelectedTables(("d.a", "d.t", "d.u"), CATALOG)
KEY = ColumnSchema(name="a", data_type="int", column_type="int(11)", nullable=False, key=True)
BIGINT = 8
FIRST_INSERTED = 2500
"""The rows that the stream inserts lie in the middle of those that d.t has anyway."""
OWN_ROWS = {A: (), T: (*range(0, FIRST_INSERTED, 100), *range(4000, 5000, 100)), U: (1, 2, 3)}


class TableFeed(RowFeed):
    """A feed that knows what its groups insert into d.t."""

    def __init__(self, folder: Path, **given: Any) -> None:
        super().__init__(folder, **given)
        self.value = FIRST_INSERTED
        self.inserted: dict[int, int] = {}  # value -> sequence number

    def insert(self, *groups: Group) -> None:
        for group in groups:
            seq_no = Gtid.parse(group.text.split()[0]).seq_no
            before = self.value
            self.arrive_rows(group)
            at = before
            for table, count in group.events:
                self.inserted |= dict.fromkeys(range(at, at + count), seq_no) if table == "t" else {}
                at += count

    def origin(self, location: RelayLocation) -> Origin:
        return origin_of(self.log, location)

    def state(self, name: tuple[str, str], seq_no: int) -> list[int]:
        """What a table holds behind a transaction."""
        inserted = [value for value, at in self.inserted.items() if at <= seq_no] if name == T else []
        return sorted([*OWN_ROWS[name], *inserted])


def alter(feed: TableFeed, gtid: str, sql: str = "ALTER TABLE d.t DROP PRIMARY KEY, ADD PRIMARY KEY (b)") -> None:
    """Have a statement arrive."""
    feed.primary.connect()
    feed.primary.statement(Gtid.parse(gtid), text=sql.encode())
    receive(feed._writer, feed.primary.wire())


def insert_wide(feed: TableFeed, gtid: str, *values: int, commit: str | None = None) -> None:
    """Have rows of d.t arrive whose key is a BIGINT; `commit`: in an XA transaction, with this GTID of its COMMIT."""
    primary = feed.primary
    primary.connect()
    primary.begin(Gtid.parse(gtid), xa=commit and "wide")
    primary.event(EventType.TABLE_MAP, table_map(1, [Column("a", BIGINT)], table="t"), inside=True)
    wide = b"".join(b"\xfe" + value.to_bytes(8, "little") for value in values)
    primary.event(INSERT, rows(1, 1, wide), inside=True)
    if commit is None:
        primary.xid()
    else:
        primary.xa_prepared("wide")
        primary.xa_end("wide", "COMMIT", Gtid.parse(commit))
    receive(feed._writer, primary.wire())
    feed.inserted |= dict.fromkeys(values, Gtid.parse(commit or gtid).seq_no)


class FakeTables:
    """What reads the tables, `chunk` rows at a time. Its answers follow from frontier and place alone."""

    blocked_tables = ()
    lost_tables: dict[tuple[str, str], str]
    """Tables whose rows cannot be read again, with the reasons."""
    rekeyed: tuple[tuple[str, str], ...] = ()
    """Tables that are not read on, as threads find that their keys are others."""
    other_keys: tuple[tuple[str, str], ...] = ()
    """Tables whose keys are others than those of the rows that were delivered, as the catalog says."""

    def __init__(self, feed: TableFeed, *, chunk: int = 7) -> None:
        self._feed = feed
        self.refused: dict[tuple[str, str], str] = {}
        """Tables that cannot be read, with the reasons."""
        self.lost_tables = {}
        self._chunk = chunk
        self.names = tuple(OWN_ROWS)
        """Those that are asked for."""
        self.is_ready = True
        self.coming = 0
        """How often more rows are said to come."""
        self.started: list[Frontier] = []
        self.released: list[Frontier] = []
        self.closed = False
        self.limits: list[ReadLimit] = []

    def start(self, frontier: Frontier) -> None:
        self.started.append(frontier)

    def ready(self) -> bool:
        return self.is_ready

    def more_rows_expected(self, limit: ReadLimit) -> bool:  # noqa: ARG002  (a planner's protocol)
        self.coming -= 1
        return self.coming >= 0

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        self.limits.append(limit)
        if not self.is_ready:
            return None
        left = [name for name in self.names if frontier.reached(name) is not None]
        if refused := [name for name in left if name in self.refused]:
            return Advance(
                frontier.begin(refused).without(refused), 0, 0, tuple((name, self.refused[name]) for name in refused)
            )
        if not left:
            return Advance(frontier.finish(), 0, 0)
        left = [name for name in left if name not in self.rekeyed or frontier.reached(name) == NOTHING]
        if not left:
            return None
        name = min(left)
        if frontier.reached(name) == NOTHING:
            self.rekeyed = self.other_keys = ()
        new = frontier.begin([name])
        rest = self._behind(name, frontier.reached(name), v)
        taken = rest[: min(self._chunk, limit.rows or self._chunk)]
        whole = len(taken) == len(rest)
        new = new.advance(name, None if whole else _kept(taken[-1]), len(taken))
        return Advance(new.finish() if whole and len(left) == 1 else new, len(taken), 8 * len(taken))

    def parts(
        self, before: Frontier, after: Frontier, v: RelayHead, *, without: Collection[tuple[str, str]]
    ) -> Sequence[SpoolPart]:
        number, parts = before.rows, []
        for name in self.names:
            if before.reached(name) is None or name in without:
                continue
            upto = after.reached(name)
            taken = [
                value for value in self._behind(name, before.reached(name), v) if upto is None or value <= _value(upto)
            ]
            if upto != NOTHING and taken:
                parts.append(self._part(name, taken, number, after.rows))
                number += len(taken)
        assert number == after.rows
        return parts

    def changed(self, frontier: Frontier, names: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        return [name for name in self.other_keys if name in names and frontier.reached(name)]

    @staticmethod
    def with_other_keys(partitions: Sequence[ChangePartition]) -> set[tuple[str, str]]:
        return tables_with_other_keys(partitions, replace(PLAN, tables=TABLES))

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        if self.changed(frontier, self.other_keys):
            raise KeyChangedError("the key was changed")
        opened = tuple(OpenTable(name, (KEY,), _canonical(_value(kept))) for name, kept in frontier.open if kept)
        pending = tuple(name for name, kept in frontier.open if not kept)
        return DeliveredKeys(("\U0010ffff", "") if frontier.done else frontier.after, opened, pending)

    def keep_from(self) -> RelayLocation | None:
        return None

    def release(self, frontier: Frontier) -> None:
        self.released.append(frontier)

    def progress(self) -> SnapshotProgress:
        return SnapshotProgress(3, 1, (T,), 12, 4096, 3.5, 40, 8.0, "")

    def close(self) -> None:
        self.closed = True

    def _behind(self, name: tuple[str, str], kept: bytes | None, v: RelayHead) -> list[int]:
        last = v.position.get(0)
        state = self._feed.state(name, last.seq_no if last else 0)
        return [value for value in state if kept is None or kept == NOTHING or value > _value(kept)]

    def _part(self, name: tuple[str, str], values: list[int], first_row: int, last_row: int) -> SpoolPart:
        folder = self._feed.spool
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"batch-{first_row}-{last_row}.rows"
        data = _event(INSERT, rows(1, 1, images(*values)))
        head = _event(EventType.GTID, bodies.gtid(0, 0, GtidFlag.TRANSACTIONAL))
        head += _event(EventType.TABLE_MAP, table_map(1, [Column("a", 3)], table=name[1]))
        path.write_bytes(data)
        return SpoolPart(path, 0, len(data), head, _event(EventType.XID, bytes(8)), first_row, len(values), name)


class Sink:
    """The rows of each table, as the batches say; every row is applied strictly."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], set[int]] = {name: set() for name in OWN_ROWS}
        self.seen: set[tuple[str, int]] = set()
        self.reads = 0

    def apply(self, partitions: Sequence[Any]) -> None:
        for row in read(partitions):
            transaction = row["transaction"]
            identity = transaction["gtid"], transaction["ordinal"]
            assert identity not in self.seen, f"{identity} is given twice"
            self.seen.add(identity)
            table = self.rows[row["database"], row["table"]]
            assert row["op"] in ("insert", "read")
            assert row["after"]["a"] not in table, "it was there already"
            table.add(row["after"]["a"])
            self.reads += row["op"] == "read"

    def check(self, feed: TableFeed, end: SourceOffset) -> None:
        """Everything up to the frontier is what the tables hold at the end of the batch."""
        last = end.position.get(0)
        for name, mine in self.rows.items():
            upto = None if end.snapshot is None else end.snapshot.reached(name)
            state = feed.state(name, last.seq_no if last else 0)
            assert sorted(mine) == [v for v in state if upto is None or (upto and v <= _value(upto))], name


def read(partitions: Sequence[Any], shape: Any = "envelope") -> list[dict[str, Any]]:
    """The rows of partitions, each read as a task reads it."""
    columns = None if shape == "variant" else PLAN.columns
    query = replace(PLAN, tables=TABLES, shape=shape, columns=columns)
    return [
        row
        for partition in pickle.loads(pickle.dumps(list(partitions)))  # noqa: S301
        for batch in read_changes(partition, query)
        for row in batch.to_pylist()
    ]


def reading_planner(
    feed: TableFeed,
    reading: FakeTables | None = None,
    *,
    opened: Callable[[], FakeTables] | None = None,
    initial: bool = True,
    inline: bool = False,
    patterns: tuple[str, ...] = TABLES.patterns,
    again: ResnapshotOption | None = None,
    requests: RequestFolder | None = None,
    **limits: Any,
) -> ChangePlanner:
    """A planner that reads the tables first, with the fields of `BatchLimits` as limits; `opened` makes what reads."""
    tables = replace(TABLES, patterns=patterns)
    cutter = RangeCutter(tables, inline=inline)
    limit = BatchLimits(**limits)
    made = reading or FakeTables(feed)
    made.names = tuple(name for name in OWN_ROWS if tables.selects(*name))
    return ChangePlanner(
        *(feed, cutter, Admission(tables, limit, cutter), history(tables)),
        RememberedSelection(selection_of(replace(PLAN, tables=tables, shape="variant")), tables, reads=initial),
        StatementDml(tables, "fail"),
        rows=SnapshotRows(
            *(feed, tables, opened or (lambda: made), lambda: made, made.with_other_keys, limit),
            initial=initial,
            again=again,
            requests=requests,
        ),
        shared=Admission(tables, limit.shared(), cutter),
    )


def _event(kind: int, body: bytes) -> bytes:
    return encode_event(kind, body, server_id=9, checksum=ChecksumAlgorithm.NONE, timestamp=1_700_000_000)


def _kept(value: int) -> bytes:
    return b"\x04" + value.to_bytes(4, "little", signed=True)


def _value(kept: bytes) -> int:
    return int.from_bytes(kept[1:], "little", signed=True)


def _canonical(value: int) -> bytes:
    return (value + (1 << 31)).to_bytes(4, "big")
