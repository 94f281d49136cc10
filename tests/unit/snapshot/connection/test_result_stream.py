"""The rows of a result, stretch by stretch."""

from __future__ import annotations

import numpy as np
import pytest

from replica.errors import ServerError
from replica.protocol.packets.packets import PacketSplitter, pack
from replica.snapshot.connection.packets import ResultStream, RowStretch


def test_a_stretch_is_whole_packets() -> None:
    rows = [b"\0\0a", b"\0\1"]
    data = np.frombuffer(b"\xaa" + b"".join(pack(row) for row in rows) + b"\xbb", np.uint8)
    stretch = RowStretch(data, 1, len(data) - 1, joined=False)
    packets = stretch.data[stretch.start : stretch.end].tobytes()
    assert [bytes(payload) for payload in PacketSplitter().feed(packets)] == rows


def test_stretches_are_taken_until_there_is_none_or_an_error() -> None:
    data = np.frombuffer(pack(b"\0\0a"), np.uint8)
    one, two = RowStretch(data, 0, len(data), joined=False), RowStretch(data, 4, len(data), joined=True)
    left = [one, two, None]
    stream = ResultStream((), lambda: left.pop(0))
    assert list(stream.stretches()) == [one, two]
    assert not left

    def fails() -> RowStretch | None:
        raise ServerError("interrupted", code=1317)

    with pytest.raises(ServerError, match="interrupted"):
        next(ResultStream((), fails).stretches())
