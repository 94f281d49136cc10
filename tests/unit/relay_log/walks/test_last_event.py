from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import last_event
from replica.relay_writer.writer import RelayWriter

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_log_has_no_last_event(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path) as relay:
        assert last_event(RelayLog(tmp_path), relay.head.location) is None
    assert last_event(RelayLog(tmp_path), RelayLocation(7, 0)) is None
