from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from replica.daemon.run import beginning
from replica.daemon.status.record import write_status
from replica.errors import DiskFullError, RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.directory.identity import take_identity
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.location import RelayLocation
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def opened(directory: Path, start: str = "latest") -> RelayWriter:
    return RelayWriter.open(directory, start=lambda: beginning(directory, start))


@pytest.fixture
def emptied(tmp_path: Path) -> Path:
    """The folder of a daemon that got to 0-1-9, without its relay files."""
    with opened(tmp_path) as relay:
        take_identity(tmp_path, drawn=7, configured=False, owner="daemon")
        relay.restart(GtidPosition.parse("0-1-7"))
        primary = Primary.dump()
        for seq in (8, 9):
            primary.transaction(Gtid(0, 1, seq))
        receive(relay, primary.wire())
        ReaderRegistration(tmp_path, "orders").keep_from(RelayLocation(1, 400), "0-1-8")
    write_status(tmp_path, record(position={"gtid": "0-1-9"}))
    for path in tmp_path.glob("relay.0*"):
        path.unlink()
    return tmp_path


KNOWN = {
    (): "relay.head shows that the log reached 0-1-9",
    ("relay.head",): "relay.status shows that the log reached 0-1-9",
    ("relay.head", "relay.status"): r"readers \(orders\) shows that the log reached 0-1-8",
    ("relay.head", "relay.status", "readers/orders.json"): "relay.identity shows that a replica ran here",
    (
        "relay.head",
        "relay.status",
        "readers/orders.json",
        "relay.identity",
    ): "readers shows that a replica ran here",
}


@pytest.mark.parametrize("gone", KNOWN, ids=lambda gone: f"without {', '.join(('files', *gone))}")
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_lost_files_are_refused_with_the_last_position_that_anything_tells(
    emptied: Path, gone: tuple[str, ...], start: str
) -> None:
    for name in gone:
        (emptied / name).unlink()
    for _ in range(2):  # being refused forgets nothing
        with pytest.raises(RelayError, match=KNOWN[gone]) as caught:
            opened(emptied, start)
    assert "--start" in caught.value.hint
    assert f"rm -r {emptied}" in caught.value.hint


def test_a_start_on_purpose_that_never_connects_forgets_nothing(emptied: Path) -> None:
    opened(emptied, "0-1-9").close()
    with pytest.raises(RelayError, match=r"relay\.head shows that the log reached 0-1-9"):
        opened(emptied)
    with opened(emptied, "0-1-9") as relay:
        relay.restart(GtidPosition.parse("0-1-9"))  # it connected
    with opened(emptied) as relay:
        assert (relay.begun, str(relay.position)) == (True, "0-1-9")
    opened(emptied, "0-1-3").close()
    with opened(emptied) as relay:
        assert (relay.begun, str(relay.position)) == (True, "0-1-9")


def test_a_damaged_head_leaves_it_to_the_others(emptied: Path) -> None:
    (emptied / "relay.head").write_bytes(b"x" * 4096)
    with pytest.raises(RelayError, match=r"relay\.status shows .* 0-1-9"):
        opened(emptied)


def test_a_position_as_start_says_it_on_purpose_and_an_empty_folder_too(emptied: Path) -> None:
    with opened(emptied, "0-1-9") as relay:
        assert not relay.begun  # the connector begins it there
    shutil.rmtree(emptied)
    emptied.mkdir()
    with opened(emptied) as relay:
        assert not relay.begun


def test_a_first_start_that_found_no_room_leaves_no_trace_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as no_room:
        no_room.setattr(os, "posix_fallocate", Mock(side_effect=full))
        with pytest.raises(DiskFullError):
            opened(tmp_path)
    with opened(tmp_path) as relay:
        assert not relay.begun


@pytest.mark.parametrize("position", ["0-1-7", ""])
def test_a_log_that_got_no_group_goes_on_where_it_began(tmp_path: Path, position: str) -> None:
    with opened(tmp_path) as relay:
        assert not relay.begun
        relay.restart(GtidPosition.parse(position))
    for start in ("latest", "earliest"):
        with opened(tmp_path, start) as relay:
            assert (relay.begun, relay.position) == (True, GtidPosition.parse(position))
    with opened(tmp_path, "0-1-3") as relay:
        assert not relay.begun, "who names a position has the last word while nothing has come"


TORN: dict[str, Callable[[bytes], bytes]] = {"inside the first group": lambda data: data[:-3], "empty": lambda _: b""}


@pytest.mark.parametrize("torn", TORN)
def test_a_first_file_torn_by_a_power_cut_begins_where_it_began_or_is_refused(tmp_path: Path, torn: str) -> None:
    with opened(tmp_path) as relay:
        relay.restart(GtidPosition.parse("0-1-7"))
        primary = Primary.dump(Gtid(0, 1, 8))
        receive(relay, primary.wire())
    (tmp_path / "relay.000001.idx").unlink()
    path = tmp_path / "relay.000001"
    path.write_bytes(TORN[torn](path.read_bytes()))
    if torn == "empty":
        with pytest.raises(RelayError, match="0-1-8"):
            opened(tmp_path)
    else:
        with opened(tmp_path) as relay:
            assert relay.position == GtidPosition.parse("0-1-7")
