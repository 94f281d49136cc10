from __future__ import annotations

from typing import TYPE_CHECKING

from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.files import scan
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.files.scan import group_ends, position_after, scan_file
from replica.relay_log.location import relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive
from tests.kit.relay.plain_reading import read_plainly

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def one_file(directory: Path, sizes: list[int]) -> tuple[Path, bytes]:
    primary = Primary.dump(zero_positions=True)
    for seq, size in enumerate(sizes, 1):
        primary.transaction(Gtid(seq % 3, 1, seq), (size,))
    with RelayWriter.open(directory, max_file_bytes=1 << 30) as relay:
        receive(relay, primary.wire())
    return relay_path(directory, 1), primary.wire()


def test_a_whole_file_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wire = one_file(tmp_path, [0, 5000, 700_000, 3, 300_000] * 3)
    monkeypatch.setattr(scan, "SCAN_BYTES", 400_000)  # events that are larger pass through piece by piece
    scanned = scan_file(path, read_file_head(path))
    plain = read_plainly(wire)
    assert scanned.position == plain.position
    assert scanned.groups == 15
    assert scanned.end == path.stat().st_size
    assert scanned.primary_position == plain.ends[0][-1][3]
    assert not scanned.unordered


def test_ends_of_a_stretch_and_the_positions_there(tmp_path: Path) -> None:
    path, wire = one_file(tmp_path, [10] * 3000)
    head = read_file_head(path)
    plain = read_plainly(wire).ends[0]
    middle = head.data_start + plain[99][0]
    stop = head.data_start + plain[2899][0]
    ends = group_ends(path, middle, stop + 5, checksum=True, primary_position=plain[99][3])
    assert ends["offset"].tolist() == [head.data_start + end[0] for end in plain[100:2900]]
    assert ends["position"].tolist() == [end[3] for end in plain[100:2900]]
    before = GtidPosition((Gtid(0, 1, 99), Gtid(1, 1, 100), Gtid(2, 1, 98)))
    assert position_after(before, ends[:1]) == before.advance(plain[100][1])
    assert position_after(before, ends) == GtidPosition((Gtid(0, 1, 2898), Gtid(1, 1, 2899), Gtid(2, 1, 2900)))
    assert position_after(before, ends[:0]) == before
