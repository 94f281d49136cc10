"""Batches end at group ends within the limits, hold at least one group, and what cannot travel is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition
from streaming_source import cutting
from streaming_source.cutting import RangeCutter
from streaming_source.offset import SourceOffset
from streaming_source.places import Place
from streaming_source.resolver import SelectedTables
from tests.unit.streaming_source.relay_feed import RelayFeed

if TYPE_CHECKING:
    from pathlib import Path

EVERYTHING = SelectedTables(("*.*",), {})


def _cutter(*, max_bytes: int = 1 << 20, inline: bool = False) -> RangeCutter:
    return RangeCutter(EVERYTHING, max_bytes=max_bytes, max_rows=None, inline=inline)


def test_a_cut_takes_whole_groups_up_to_the_limit_and_at_least_one(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    feed.arrive(*(f"0-1-{n}" for n in range(1, 21)))
    log, end = feed.log, feed.head().location
    start = log.locate(GtidPosition())
    assert start is not None
    one = log.locate(GtidPosition.parse("0-1-1"))
    assert one is not None
    size = one.offset - max(start.offset, 0)
    for limit, expected in ((1, 1), (size, 1), (1 << 30, 20)):
        cut = _cutter(max_bytes=limit).cut(log, Place.exactly(start), end, bounded=True)
        assert cut is not None
        assert str(cut.position) == f"0-1-{expected}"
    assert _cutter().cut(log, Place.exactly(end), end, bounded=True) is None


@pytest.mark.parametrize(
    ("limit", "what"), [("INLINE_PARTITION_BYTES", "a transaction"), ("INLINE_BATCH_BYTES", "a batch")]
)
def test_what_is_too_large_to_travel_is_refused_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    monkeypatch.setattr(cutting, limit, 1 << 20)
    feed = RelayFeed(tmp_path)
    feed.arrive("0-1-1", rows=3 << 20)
    log, end = feed.log, feed.head().location
    start = log.locate(GtidPosition())
    assert start is not None
    offsets = [SourceOffset(p, p) for p in (GtidPosition(), GtidPosition.parse("0-1-1"))]
    with pytest.raises(ConfigError, match=f"{what} of 3 MB cannot travel.*the limit is 1 MB.*transport=path"):
        _cutter(inline=True).partitions(log, Place.exactly(start), Place.exactly(end), *offsets)
    assert len(_cutter().partitions(log, Place.exactly(start), Place.exactly(end), *offsets)) == 1
