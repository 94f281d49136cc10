from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from replica.errors import ProtocolError, RelayError, ReplicaError
from replica.protocol.constants import EventType
from replica.protocol.events.binlog_file import encode_rotate, walk
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.files.lookup import encode_file_head, file_identity, read_file_head
from tests.kit.binlog.primary import CRC32, NONE, format_description

if TYPE_CHECKING:
    from pathlib import Path

PRIMARY = BinlogPosition("bin.000042", 5_000_000_123)


@pytest.mark.parametrize("checksum", [CRC32, NONE])
@pytest.mark.parametrize("domains", [0, 1, 4096])
def test_what_is_written_is_read(tmp_path: Path, checksum: object, domains: int) -> None:
    position = GtidPosition(tuple(Gtid(d, 1, d + 1) for d in range(domains)))
    fde = format_description(checksum)  # type: ignore[arg-type]
    data = encode_file_head(fde, PRIMARY, position)
    path = tmp_path / "relay.000001"
    path.write_bytes(data + b"groups")
    head = read_file_head(path)
    assert (head.format, head.primary, head.position, head.data_start) == (fde, PRIMARY, position, len(data))
    assert head.checksum is (checksum == CRC32)
    kinds = [event.header.event_type for event in walk(data)]
    assert kinds == [EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.GTID_LIST]


def test_every_truncation_and_damage_is_refused(tmp_path: Path) -> None:
    data = encode_file_head(format_description(CRC32), PRIMARY, GtidPosition.parse("0-1-5"))
    path = tmp_path / "relay.000001"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(RelayError, match=r"relay\.000001"):
            read_file_head(path)
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes((data[at] ^ 0x40,)) + data[at + 1 :])
        with pytest.raises(RelayError, match=r"relay\.000001"):
            read_file_head(path)


def test_only_a_format_description_begins_a_file() -> None:
    rotate = encode_rotate("bin.000001", 4, server_id=1, checksum=CRC32)
    with pytest.raises(ProtocolError):
        encode_file_head(rotate, PRIMARY, GtidPosition())


@pytest.mark.parametrize("checksum", [CRC32, NONE])
def test_a_damaged_format_description_is_refused_or_begins_a_file_that_is_read(
    tmp_path: Path, checksum: object
) -> None:
    whole = format_description(checksum)  # type: ignore[arg-type]
    path, refused = tmp_path / "relay.000001", 0
    for at, bit in itertools.product(range(len(whole)), (0x01, 0x04, 0x80, 0xFF)):
        fde = whole[:at] + bytes((whole[at] ^ bit,)) + whole[at + 1 :]
        try:
            data = encode_file_head(fde, PRIMARY, GtidPosition.parse("0-1-5"))
        except ReplicaError:
            refused += 1
            continue
        path.write_bytes(data)
        head = read_file_head(path)
        assert (head.primary, str(head.position)) == (PRIMARY, "0-1-5")
    assert refused


def test_identity_of_the_primarys_file() -> None:
    usual = file_identity(format_description(CRC32), "bin.000001")
    assert usual == file_identity(format_description(CRC32, created=1_700_000_000), "bin.000001")
    assert usual != file_identity(format_description(CRC32), "bin.000002")
    assert usual != file_identity(format_description(NONE), "bin.000001")
    assert usual != file_identity(format_description(CRC32, timestamp=1_800_000_000), "bin.000001")
