from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from replica.daemon.config import DaemonConfig
from replica.daemon.monitor import Monitor
from replica.daemon.retain import Retaining
from replica.daemon.status.observer import Observer
from replica.daemon.status.record import Failure
from replica.live.progress import Progress
from replica.protocol.gtid import Gtid
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive
from tests.unit.daemon.records import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAILURE = Failure(error="PositionLostError", message="It is gone.", hint="", exit_code=32)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path) as writer:
        yield writer


def observer(relay: RelayWriter, progress: Progress) -> Observer:
    config = DaemonConfig.parse({"user": "repl", "relay_dir": str(relay.directory), "ready_lag_s": 5})
    log = structlog.get_logger()
    monitor = Monitor(config, endpoint=lambda: config.endpoints[0], needed_file=str, log=log)
    retaining = Retaining(config, relay.directory, log)
    return Observer(
        config,
        relay,
        progress,
        monitor=monitor,
        retaining=retaining,
        loop_delay_s=lambda: 0.25,
        errors=lambda: {"x": 3},
    )


def test_a_log_that_has_just_begun(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "free_bytes", lambda: 12_345)
    record = observer(relay, Progress(state="connecting", started_at=NOW, last_error="no route")).record()
    assert (record.ready, record.not_ready) == (False, "connecting: no route")
    assert (record.position.gtid, record.position.time, record.relay.files) == ("", None, 0)
    assert (record.loop_delay_s, record.errors) == (0.25, {"x": 3, "monitor": 0})
    assert record.behind.purge == "unknown"
    assert record.relay.free_bytes == 12_345


def test_a_file_counts_as_soon_as_it_is_there(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.daemon.status.observer.FRESH_S", 0.0)
    seen, source = observer(relay, Progress()), Primary()
    for number in (1, 2, 3):  # each a new file of the primary without a group in it
        source.file = f"bin.{number:06d}"
        source.events.clear()
        source.open_file()
        receive(relay, source.wire())
        on_disk = len(list(relay.directory.glob("relay.00000?")))
        assert on_disk > 0
        assert seen.record().relay.files == on_disk
    source.transaction(Gtid(0, 1, 1), rows=(20,))
    receive(relay, source.wire())
    assert seen.record().relay.files == len(list(relay.directory.glob("relay.00000?")))


@pytest.mark.parametrize(
    ("progress", "why"),
    [
        (Progress(state="starting"), "starting"),
        (Progress(state="paused", pause="disk nearly full"), "receiving is paused: disk nearly full"),
        (Progress(state="disk full", last_error="No room."), "disk full: No room."),
        (Progress(state="streaming"), "the lag is not known yet"),
    ],
)
def test_why_it_is_not_ready(relay: RelayWriter, progress: Progress, why: str) -> None:
    record = observer(relay, progress).record()
    assert (record.ready, record.not_ready) == (False, why)


def test_what_ended_it_stands_in_the_record(relay: RelayWriter) -> None:
    seen = observer(relay, Progress(state="failed"))
    seen.failed = FAILURE
    assert seen.record().failure == FAILURE
    assert seen.record().not_ready == "failed: It is gone."


def test_many_questions_are_one_look(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.daemon.status.observer.FRESH_S", 3600.0)
    seen = observer(relay, Progress())
    first = seen.record()
    assert seen.record() is first
    second = seen.record(fresh=True)
    assert second is not first
    monkeypatch.setattr("replica.daemon.status.observer.FRESH_S", 0.0)
    assert seen.record() is not second


def test_semi_sync_is_of_the_connection_there_is(relay: RelayWriter) -> None:
    assert observer(relay, Progress(state="streaming", semi_sync=True)).record().connection.semi_sync
    assert not observer(relay, Progress(state="connecting", semi_sync=True)).record().connection.semi_sync


def test_readers_and_what_the_log_holds_after_their_place(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    ReaderRegistration(relay.directory, "at the end").keep_from(relay.head.location, "")
    monkeypatch.setattr(type(relay), "head", relay.head._replace(location=RelayLocation(3, 1000)))
    ReaderRegistration(relay.directory, "two files back").keep_from(RelayLocation(1, 100), "0-1-1")
    readers = {one.name: one for one in observer(relay, Progress()).record().readers}
    assert readers["two files back"].bytes_behind is None  # its files are gone
    for number, size in ((1, 500), (2, 700)):
        relay_path(relay.directory, number).write_bytes(bytes(size))
    readers = {one.name: one for one in observer(relay, Progress()).record().readers}
    assert readers["two files back"].bytes_behind == 500 + 700 + 1000 - 100
    assert readers["two files back"].position == "0-1-1"
