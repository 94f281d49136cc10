"""The bytes of a result's rows."""

from __future__ import annotations

import numpy as np

from replica.protocol.packets import PacketSplitter, pack
from replica.table_reader.result_stream import RowStretch


def test_a_stretch_is_whole_packets() -> None:
    rows = [b"\0\0a", b"\0\1"]
    data = np.frombuffer(b"\xaa" + b"".join(pack(row) for row in rows) + b"\xbb", np.uint8)
    stretch = RowStretch(data, 1, len(data) - 1, joined=False)
    packets = stretch.data[stretch.start : stretch.end].tobytes()
    assert [bytes(payload) for payload in PacketSplitter().feed(packets)] == rows
