from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path

if TYPE_CHECKING:
    from pathlib import Path


def test_locations_order_as_the_stream_does() -> None:
    assert RelayLocation(1, 900) < RelayLocation(2, 0) < RelayLocation(2, 5) < RelayLocation(10, 0)
    assert str(RelayLocation(12, 345)) == "relay.000012:345"


def test_only_relay_files_are_counted(tmp_path: Path) -> None:
    for number in (3, 1, 1_000_000):
        relay_path(tmp_path, number).touch()
    for name in ("relay.000007.idx", "relay.head", "relay.lock", "relay.12", "bin.000001", "relay.000009.new"):
        (tmp_path / name).touch()
    assert relay_numbers(tmp_path) == [1, 3, 1_000_000]
    assert index_path(tmp_path, 3).name == "relay.000003.idx"
