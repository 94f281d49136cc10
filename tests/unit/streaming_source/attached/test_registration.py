"""What a query says to the daemon's retention, and what it hears from it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import mark_dropped, registered_readers
from replica.relay_log.location import RelayLocation
from streaming_source.attached import registration as attached_name
from streaming_source.attached import registration as attached_reader
from streaming_source.attached.registration import QueryRegistration, take_name
from streaming_source.options.source_options import SourceOptions
from tests.fixtures.mariadb import wait_until
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.relay_log.directory.readers import Reader

POSITION = GtidPosition.parse("0-1-2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A relay log of three files."""
    feed = RelayFeed(tmp_path)
    for file in (1, 2, 3):
        feed.primary.file = f"bin.{file:06d}"
        feed.arrive(f"0-1-{file}")
    feed.close()
    return tmp_path


@pytest.fixture
def held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryRegistration]:
    monkeypatch.setattr(attached_name, "PATIENCE_S", 0.0)
    held = _held(folder)
    yield held
    held.close()


def _held(folder: Path) -> QueryRegistration:
    return QueryRegistration(folder, SourceOptions.parse({"table": "a.b", "relayDir": str(folder), "readerName": "me"}))


def _reader(folder: Path) -> Reader:
    (reader,) = registered_readers(folder)
    return reader


def test_a_new_name_keeps_everything(folder: Path, held: QueryRegistration) -> None:
    held.claim()
    reader = _reader(folder)
    assert (reader.name, reader.location, reader.position) == ("me", RelayLocation(1, 0), "")


def test_a_known_name_keeps_what_it_kept(folder: Path, held: QueryRegistration) -> None:
    held.claim()
    held.keep_from(RelayLocation(2, 300), POSITION)
    held.close()
    again = _held(folder)
    again.claim()
    assert (_reader(folder).location, _reader(folder).position) == (RelayLocation(2, 300), "0-1-2")
    again.close()
    assert _reader(folder).name == "me"


def test_a_folder_made_anew_is_claimed_anew(folder: Path, held: QueryRegistration) -> None:
    held.claim()
    held.keep_from(RelayLocation(2, 300), POSITION)
    shutil.rmtree(folder / "readers")
    held.claim()
    assert _reader(folder).location == RelayLocation(1, 0)
    with pytest.raises(RelayError, match="another query reads"):
        take_name(folder, held._options)


def test_only_another_file_or_another_second_is_worth_a_file(
    held: QueryRegistration, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(attached_reader.time, "monotonic", lambda: now[0])
    held.claim()
    held.keep_from(RelayLocation(1, 300), POSITION)
    assert not held.is_news(RelayLocation(1, 400))
    assert held.is_news(RelayLocation(2, 0))
    now[0] += 1
    assert held.is_news(RelayLocation(1, 400))
    assert not held.is_news(RelayLocation(1, 300))


def test_it_is_seen_while_nobody_calls(folder: Path, held: QueryRegistration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_reader, "TOUCH_EVERY_S", 0.01)
    held.claim()
    registration = folder / "readers" / "me.json"
    os.utime(registration, (1000, 1000))
    wait_until(lambda: _reader(folder).seen > 1000, "the registration is touched")


def test_a_reader_that_was_dropped_hears_it_running_and_started_again(folder: Path, held: QueryRegistration) -> None:
    held.check()  # before it is anybody
    held.claim()
    held.check()
    mark_dropped(folder, _reader(folder), 2, "too slow")
    with pytest.raises(DataLossError, match="'me': too slow"):
        held.check()
    held.close()
    again = _held(folder)
    for file in (1,):
        (folder / f"relay.{file:06d}").unlink()
        (folder / f"relay.{file:06d}.idx").unlink()
    again.claim()
    assert again.lost is not None
    assert "too slow" in str(again.lost)
    assert _reader(folder).location == RelayLocation(2, 0)
    again.check()  # it reads what there is
    again.close()
