"""A walk over a mapped range holds a window of it in memory, however large the range is."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from replica.errors import DataLossError
from replica.protocol.constants import EventType
from replica.relay_log.log import RelayRange
from replica.relay_log.walks.ddl import MappedRelayRange
from replica.rows.decode.row_index import index_rows
from replica.rows.scan import windows
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.real_rows import images
from tests.kit.binlog.rows import INSERT, Column, rows, table_map

BEFORE = 3 * mmap.PAGESIZE + 100
"""Bytes in front of the range: it begins inside a page."""
WINDOW = 4 << 20


def resident(path: Path) -> int:
    """The bytes of a file that this process has mapped in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def large_group(path: Path) -> RelayRange:
    """One transaction of some 48 MB."""
    stream = Primary()
    stream.begin()
    stream.event(EventType.TABLE_MAP, table_map(1, [Column("a", 3)]), inside=True)
    stream.event(INSERT, rows(1, 1, images(*range(1600)), flags=0), inside=True)
    head, event = b"".join(stream.events[:-1]), stream.events[-1]
    stream.events.clear()
    stream.event(INSERT, rows(1, 1, images(1)), inside=True)
    stream.xid(1)
    path.write_bytes(bytes(BEFORE) + head + event * 6000 + bytes(stream))
    return RelayRange(str(path), BEFORE, path.stat().st_size, checksum=True)


def test_pages_go_as_they_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", WINDOW)
    path = tmp_path / "relay.000001"
    part = large_group(path)
    mapped = MappedRelayRange(part)
    most = []

    def passed(offset: int) -> None:
        most.append(resident(path))
        mapped.release_before(offset)

    index = index_rows(mapped.data, checksum=True, resolver=SelectedTables(("*.*",), {}), on_progress=passed)
    assert index is not None
    assert index.total_rows == 1600 * 6000 + 1
    assert len(most) > 10
    assert WINDOW // 2 < max(most) < 4 * WINDOW < (part.end - part.start) // 2  # the kernel brings some pages around
    assert resident(path) < 2 * WINDOW
    assert bytes(mapped.data) == path.read_bytes()[BEFORE:]  # what was passed can be read again
    assert resident(path) > 8 * WINDOW
    mapped.release_before(0)  # another walk begins
    mapped.release_before(len(mapped.data))
    assert resident(path) < 2 * WINDOW


def test_a_file_that_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "relay.000007"
    path.write_bytes(np.arange(100, dtype=np.uint8).tobytes())
    part = RelayRange(str(path), 10, 100, checksum=True)
    assert bytes(MappedRelayRange(part).data) == bytes(range(10, 100))
    path.unlink()
    with pytest.raises(DataLossError, match=r"relay\.000007"):
        MappedRelayRange(part)
