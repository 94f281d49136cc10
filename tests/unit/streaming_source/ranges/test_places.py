"""The owner of a query's relay files lets go what lies before all claims."""

from __future__ import annotations

import pytest

from replica.errors import RelayError
from replica.relay_log.location import RelayLocation
from streaming_source.ranges.places import KeptLog, OffsetPlace, RelayPlaces
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed


class Releasing:
    def __init__(self) -> None:
        self.places: list[RelayLocation] = []

    def release(self, keep_from: RelayLocation) -> None:
        self.places.append(keep_from)


def test_what_lies_before_all_claims_goes() -> None:
    feed, needed = Releasing(), [RelayLocation(3, 100), None]
    kept = KeptLog(feed)
    for number in range(len(needed)):
        kept.claim(lambda number=number: needed[number])
    kept.release(RelayLocation(5, 0))
    needed[1] = RelayLocation(2, 7)
    kept.release(RelayLocation(5, 0))
    needed[:] = None, None
    kept.release(RelayLocation(5, 0))
    assert feed.places == [RelayLocation(3, 100), RelayLocation(2, 7), RelayLocation(5, 0)]


def test_room_is_made_by_no_file_that_is_claimed(tmp_path: object) -> None:
    feed = RelayFeed(tmp_path, [f"0-1-{n}" for n in range(1, 40)], file_bytes=1024)  # type: ignore[arg-type]
    kept = KeptLog(feed)
    kept.claim(lambda: RelayLocation(2, 0))
    places = RelayPlaces(feed, kept)
    feed.full = True
    head = feed.head()
    assert head.location.file > 3
    with pytest.raises(RelayError, match="relayMaxBytes"):
        places.make_room(OffsetPlace.exactly(head.location), head.position)
    assert feed.log.oldest().file == 2
    feed.close()
