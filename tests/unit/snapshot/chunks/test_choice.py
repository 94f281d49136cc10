"""Which chunks a batch takes: those that wait, in order, as far as the relay log has got."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import GtidPosition, covers
from replica.snapshot.chunks.schedule import ALL, ReadingList, ReadLimit, choose_chunks
from replica.snapshot.spool.spool import Spool
from tests.unit.snapshot.chunks.test_schedule import A, chunk, take
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from pathlib import Path


class View(RelayFeed):
    """A log that nothing comes into."""

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:  # noqa: ARG002  (a view's protocol)
        return covers(self.head().position, position)


@pytest.mark.parametrize(
    ("uppers", "ordered", "limit", "taken"),
    [
        (["0-1-1", "0-1-2", "0-1-9"], True, ALL, 2),  # the log may be full, and get there behind the batch alone
        (["0-1-9", "0-1-9"], True, ALL, 0),
        (["0-1-1", "0-1-2", "0-1-9"], False, ALL, 0),  # a table that is delivered as a whole
        (["0-1-1", "0-1-2"], False, ALL, 2),
        (["0-1-1", "0-1-2"], True, ReadLimit(rows=5), 1),
        (["0-1-1", "0-1-2"], True, ReadLimit(rows=6), 2),
    ],
)
def test_chunks_that_were_read_behind_the_end_of_the_log_do_not_hold_up_others(
    tmp_path: Path, uppers: list[str], *, ordered: bool, limit: ReadLimit, taken: int
) -> None:
    feed = View(tmp_path / "relay", ["0-1-1", "0-1-2"])
    spool, tables = Spool(tmp_path, most_bytes=1 << 30, min_free_bytes=0), ReadingList()
    tables.add([A])
    ends = [b"", *(str(number).encode() for number in range(1, len(uppers))), None]
    for upper, (begin, end) in zip(uppers, pairwise(ends), strict=True):
        table = take(tables)
        read = replace(chunk(spool, begin or b"", end, ordered=ordered), high=GtidPosition.parse(upper))
        assert tables.put(table, table.life, read)
    found, gone = choose_chunks(feed, tables.deliverable(), feed.head(), limit)
    assert [len(run.chunks) for run, _ in found] == [taken] * bool(taken)
    assert gone == []
    feed.close()
