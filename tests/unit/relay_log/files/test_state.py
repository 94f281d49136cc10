from __future__ import annotations

import pytest

from replica.errors import ConfigError, RelayError
from replica.native.kernel_group import STANDALONE
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.files.scan import StreamState
from replica.relay_log.kernels import stream_record
from replica.relay_log.kernels.stream_record import MAX_DOMAINS, Cell
from replica.relay_writer.receiver import refusal


def test_a_seeded_state_gives_its_position_back() -> None:
    position = GtidPosition((Gtid(0, 1, 2**64 - 1), Gtid(7, 2**32 - 1, 5), Gtid(2**32 - 1, 3, 9)))
    state = StreamState(position, framed=True)
    assert state.position() == position
    assert len(state.domain_bytes()) == 3 * 16


def test_a_new_connection_forgets_what_was_half_received() -> None:
    state = StreamState(GtidPosition(), framed=True)
    state[Cell.group], state[Cell.event_left], state[Cell.packet_left] = STANDALONE, 5, 6
    state[Cell.offset], state[Cell.committed_offset], state[Cell.ack_position] = 900, 700, 44
    state.reset_stream(semi_sync=True, strict=True)
    assert [state[s] for s in (Cell.group, Cell.event_left, Cell.packet_left, Cell.ack_position)] == [0, 0, 0, 0]
    assert (state[Cell.offset], state[Cell.semi_sync], state[Cell.checksum]) == (700, 1, -1)


def test_more_domains_than_a_position_may_have() -> None:
    with pytest.raises(ConfigError, match="4097"):
        StreamState(GtidPosition(tuple(Gtid(d, 1, 1) for d in range(MAX_DOMAINS + 1))), framed=True)
    state = StreamState(GtidPosition(tuple(Gtid(d, 1, 1) for d in range(MAX_DOMAINS))), framed=True)
    assert type(refusal(stream_record.TOO_MANY_DOMAINS, state, "bin.000001")) is RelayError
