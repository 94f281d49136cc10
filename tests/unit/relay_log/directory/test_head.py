from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.directory.head import HEAD_NAME, HeadFile, Snapshot, next_number, read_head
from replica.relay_log.location import RelayHead, RelayLocation

if TYPE_CHECKING:
    from pathlib import Path


def snapshot(domains: int = 1, file: str = "bin.000001") -> Snapshot:
    rows = b"".join(struct.pack("<IIQ", d, 7, d + 100) for d in range(domains))
    return Snapshot(3, 5_000_000_000, file, 6_000_000_000, 1_700_000_000, rows)


def test_what_is_published_is_what_is_read(tmp_path: Path) -> None:
    file = HeadFile(tmp_path)
    assert read_head(tmp_path) is None, "nothing published yet"
    for domains in (2, 4096, 0, 300, 1):
        file.publish(snapshot(domains))
        assert read_head(tmp_path) == snapshot(domains).head
    file.close()
    assert read_head(tmp_path) == RelayHead(
        RelayLocation(3, 5_000_000_000),
        GtidPosition.parse("0-7-100"),
        BinlogPosition("bin.000001", 6_000_000_000),
        1_700_000_000,
    )


def test_no_head_where_nothing_was_ever_written(tmp_path: Path) -> None:
    assert read_head(tmp_path) is None


def test_a_reopened_file_keeps_its_record(tmp_path: Path) -> None:
    first = HeadFile(tmp_path)
    first.publish(snapshot())
    first.close()
    second = HeadFile(tmp_path)
    assert read_head(tmp_path) == snapshot().head
    second.close()


def test_a_half_written_record_is_no_answer(tmp_path: Path) -> None:
    file = HeadFile(tmp_path)
    file.publish(snapshot())
    file.close()
    path = tmp_path / HEAD_NAME
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(RelayError, match="damaged"):
        read_head(tmp_path, attempts=3)


@pytest.mark.parametrize("length", [0, 1, 6, 43, 44, 60])
def test_a_torn_record_is_damage_and_none_at_all_is_nothing(tmp_path: Path, length: int) -> None:
    file = HeadFile(tmp_path)
    file.publish(snapshot())
    file.close()
    path = tmp_path / HEAD_NAME
    path.write_bytes(path.read_bytes()[:length])
    if length == 0:
        assert read_head(tmp_path) is None
    else:
        with pytest.raises(RelayError, match="damaged"):
            read_head(tmp_path, attempts=2)
    assert next_number(tmp_path) == 1


def test_an_empty_log_goes_on_behind_the_numbers_it_had(tmp_path: Path) -> None:
    assert next_number(tmp_path) == 1
    file = HeadFile(tmp_path)
    file.publish(snapshot())
    assert next_number(tmp_path) == 4, "file 3 held groups"
    file.publish(snapshot()._replace(offset=0))
    assert next_number(tmp_path) == 3, "it was never written"
    file.close()


def test_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / HEAD_NAME).write_bytes(b"RELAYHED" + struct.pack("<II", 2, 60) + bytes(8000))
    with pytest.raises(RelayError, match="another version"):
        read_head(tmp_path)
