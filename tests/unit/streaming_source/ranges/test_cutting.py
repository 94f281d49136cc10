"""Ranges become partitions that suit cores and batch; large transactions are shared; what cannot travel is refused."""

from __future__ import annotations

import pickle
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ConfigError
from replica.protocol.constants import EventType
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.offsets.offset import GroupPart, SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.ranges import cutting
from streaming_source.ranges.cutting import PartitionSize, RangeCutter, SchemaStretch
from streaming_source.ranges.places import OffsetPlace
from streaming_source.rows.partition import InlineRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.real_rows import images as row_images
from tests.kit.binlog.rows import Column, rows, table_map
from tests.kit.relay.driving import receive
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayLocation
    from streaming_source.rows.partition import ChangePartition

EVERYTHING = SelectedTables(("*.*",), {})
ORDERS = table_map(1, [Column("id", 3)], table="orders")
ROWS = 500  # of one rows event
XA = b"XA COMMIT X'78',X'',1"


@cache
def images(number: int) -> bytes:
    """The rows of the rows event with this number in its transaction."""
    return row_images(*range(number * ROWS, (number + 1) * ROWS))


class Log(RelayFeed):
    """A relay log whose transactions hold real rows."""

    def large(self, *gtids: str, events: int, xa: str | None = None) -> RelayLocation:
        """Transactions of so many rows events; returns where they end."""
        primary = self.primary
        primary.events.clear()
        primary.open_file()
        for text in gtids:
            gtid = Gtid.parse(text)
            primary.begin(gtid, xa=xa)
            primary.event(EventType.TABLE_MAP, ORDERS, inside=True)
            for number in range(events):
                event = rows(1, 1, images(number), flags=int(number == events - 1))
                primary.event(EventType.WRITE_ROWS_V1, event, inside=True)
            if xa is None:
                primary.xid(gtid.seq_no)
            else:
                primary.xa_prepared(xa)
        receive(self._writer, primary.wire())
        return self.head().location

    def place(self, position: str) -> OffsetPlace:
        location = self.log.locate(GtidPosition.parse(position))
        assert location is not None
        return OffsetPlace.exactly(location)


def offset(position: str, part: GroupPart | None = None) -> SourceOffset:
    parsed = GtidPosition.parse(position)
    return SourceOffset(parsed, parsed, part=part)


def cut(
    log: Log, first: str, last: str, *, inline: bool = False, size: PartitionSize | None = None, **known: Any
) -> Any:
    begun, ended = known.pop("skip", None), known.pop("take", None)
    cutter = RangeCutter(EVERYTHING, inline=inline, size=size or PartitionSize())
    end = offset(last if ended is None else str(GtidPosition.parse(first)), ended)
    ranges = cutter.partitions(log.log, log.place(first), log.place(last), offset(first, begun), end, **known)
    return cutter.on_board(ranges)


def read(partitions: list[ChangePartition]) -> list[tuple[str, int, bool]]:
    plan = ReadPlan("variant", EVERYTHING, None, "server")
    found: list[tuple[str, int, bool]] = []
    for partition in partitions:
        for batch in read_changes(partition, plan):
            columns = (batch.column("transaction").field(name) for name in ("gtid", "ordinal", "is_last"))
            found += zip(*(column.to_pylist() for column in columns), strict=True)
    return found


def expected(gtid: str, events: int, first: int = 0, end: int | None = None) -> list[tuple[str, int, bool]]:
    total = events * ROWS
    return [(gtid, n, n == total - 1) for n in range(first, total if end is None else end)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of 64 KB, the least there is."""
    monkeypatch.setattr(cutting, "MOST_BYTES", 1)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.usefixtures("small")
def test_one_large_transaction_is_shared_by_tasks(tmp_path: Path, *, inline: bool) -> None:
    log = Log(tmp_path, ["0-1-1"])
    log.large("0-1-2", "0-1-3", events=200)
    log.large("0-1-4", events=1)
    partitions = cut(log, "0-1-1", "0-1-4", inline=inline)
    assert len(partitions) >= 7
    assert max(partition.size for partition in partitions) < 120_000
    assert read(partitions) == [*expected("0-1-2", 200), *expected("0-1-3", 200), *expected("0-1-4", 1)]


@pytest.mark.usefixtures("small")
def test_a_large_prepared_transaction_comes_in_parts_at_its_xa_commit(tmp_path: Path) -> None:
    log = Log(tmp_path, ["0-1-1"])
    log.large("0-1-2", events=200, xa="x")
    log.arrive("0-1-3 commit x")
    log.large("0-1-4", events=1)
    for first in ("0-1-1", "0-1-2"):
        partitions = cut(log, first, "0-1-4") if first == "0-1-1" else None
        if partitions is None:
            place = log.place("0-1-1")
            cutter = RangeCutter(EVERYTHING, inline=False)
            from replica.relay_log.walks.xa import follow  # noqa: PLC0415

            prepared = follow(log.log, [(place.reached, log.place("0-1-2").reached)], ())[1]
            begin = log.place("0-1-2")._replace(prepared=prepared)
            partitions = cutter.partitions(log.log, begin, log.place("0-1-4"), offset("0-1-2"), offset("0-1-4"))
        assert len(partitions) >= 4
        assert read(partitions) == [*expected("0-1-3", 200), *expected("0-1-4", 1)]


@pytest.mark.parametrize(
    ("skip", "take"),
    [(None, 700), (700, None), (700, 701), (49_999, 70_000), (50_000, None), (0, 99_999), (99_999, None)],
)
def test_a_batch_may_hold_a_part_of_a_transaction_and_reads_little_else(
    tmp_path: Path, skip: int | None, take: int | None
) -> None:
    log = Log(tmp_path, ["0-1-1"])
    log.large("0-1-2", events=200)
    gtid = Gtid.parse("0-1-2")
    parts = {
        "skip": None if skip is None else GroupPart(gtid, skip),
        "take": None if take is None else GroupPart(gtid, take),
    }
    partitions = cut(log, "0-1-1", "0-1-2", **parts)
    assert read(partitions) == expected("0-1-2", 200, skip or 0, take)
    bytes_a_row = 5
    rows_read = (200 * ROWS if take is None else take) - (skip or 0)
    assert sum(partition.size for partition in partitions) < rows_read * bytes_a_row + 2 * (8 << 10) + 2000


@pytest.mark.usefixtures("small")
def test_a_daemons_log_travels_inline_too_and_a_replayed_batch_alike(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    log = Log(folder, ["0-1-1"])
    log.large("0-1-2", events=100)
    given = {"tables": "*.*", "relayDir": str(folder), "transport": "inline", "startingPosition": "0-1-1"}
    plan = ReadPlan("variant", EVERYTHING, None, "")
    first = open_planner(SourceOptions.parse(given), plan)
    start = first.initial_offset()
    first.latest_offset(start, bounded=True)
    end = first.latest_offset(start, bounded=True)
    partitions = first.partitions(start, end)
    first.close()
    again = open_planner(SourceOptions.parse(given), plan)
    assert again.partitions(start, end) == partitions
    again.close()
    log.close()
    shutil.rmtree(folder)
    assert len(partitions) > 2
    assert all(isinstance(part, InlineRange) for partition in partitions for part in partition.ranges)
    assert read(pickle.loads(pickle.dumps(partitions))) == expected("0-1-2", 100)  # noqa: S301


@pytest.mark.usefixtures("small")
def test_small_ranges_of_many_files_share_a_task(tmp_path: Path) -> None:
    log = Log(tmp_path, ["0-1-1"])
    for number in range(2, 12):
        log.primary.events.clear()
        log.primary.open_file(f"bin.{number:06d}")
        receive(log._writer, log.primary.wire())
        log.large(f"0-1-{number}", events=2)
    assert log.head().location.file >= 10
    partitions = cut(log, "0-1-1", "0-1-11")
    assert len(partitions) == 1
    files = [part.file for part in partitions[0].ranges]
    assert len(files) == len(set(files)) == 10
    assert read(partitions) == [row for n in range(2, 12) for row in expected(f"0-1-{n}", 2)]


def test_stretches_are_cut_apart_and_carry_their_tables(tmp_path: Path) -> None:
    log = Log(tmp_path, ["0-1-1"])
    middle = log.large("0-1-2", events=1)
    end = log.large("0-1-3", events=1)
    changes = ((("d", "orders"), None),)
    begin = log.place("0-1-1").scan_from
    stretches = [SchemaStretch(begin, middle), SchemaStretch(middle, end, changes)]
    (partition,) = cut(log, "0-1-1", "0-1-3", stretches=stretches)
    assert [part.catalog for part in partition.ranges] == [(), changes]
    assert read([partition]) == [*expected("0-1-2", 1), *expected("0-1-3", 1)]


@pytest.mark.parametrize(
    ("limit", "what"),
    [("INLINE_PARTITION_BYTES", "a transaction that cannot be divided,"), ("INLINE_BATCH_BYTES", "a batch")],
)
def test_what_is_too_large_to_travel_is_refused_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    monkeypatch.setattr(cutting, limit, 100_000)
    log = Log(tmp_path, ["0-1-1"])
    log.large("0-1-2", events=100)
    with pytest.raises(ConfigError, match=f"{what} of 0 MB cannot travel.*transport=path"):
        cut(log, "0-1-1", "0-1-2", inline=True)
    assert len(cut(log, "0-1-1", "0-1-2")) == 1
