from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.commands.check.machine import relay_end
from replica.errors import RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.location import relay_numbers, relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    primary = Primary.dump()
    for seq in range(2, 9):
        primary.transaction(Gtid(0, 1, seq))
    with RelayWriter.open(tmp_path, start=GtidPosition.parse("0-1-1"), max_file_bytes=500) as relay:
        receive(relay, primary.wire())
    assert len(relay_numbers(tmp_path)) > 1
    return tmp_path


def test_where_a_log_ends_or_begins(written: Path, tmp_path: Path) -> None:
    end = relay_end(written, "latest")
    assert end is not None
    assert str(end.stored.position) == "0-1-8"
    assert relay_end(tmp_path / "none", "latest") is None


def test_lost_files_are_told_as_the_start_would_tell_them(written: Path) -> None:
    for number in relay_numbers(written):
        relay_path(written, number).unlink()
    for start in ("latest", "earliest"):
        with pytest.raises(RelayError, match=r"are missing: .* reached 0-1-8") as caught:
            relay_end(written, start)
        assert "--start 0-1-8" in caught.value.hint
    assert relay_end(written, "0-1-8") is None, "then it is asked whether the server has that"


def test_the_last_file_alone_is_gone(written: Path) -> None:
    last = relay_path(written, relay_numbers(written)[-1])
    last.unlink()
    with pytest.raises(FileNotFoundError, match=last.name):
        relay_end(written, "latest")
