from __future__ import annotations

import pytest

from replica.errors import ConfigError, RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log import slots
from replica.relay_log.kernel_deframe import MAX_DOMAINS
from replica.relay_log.state import StreamState
from replica.relay_writer.refusal import refusal


def test_a_seeded_state_gives_its_position_back() -> None:
    position = GtidPosition((Gtid(0, 1, 2**64 - 1), Gtid(7, 2**32 - 1, 5), Gtid(2**32 - 1, 3, 9)))
    state = StreamState(position, framed=True)
    assert state.position() == position
    assert len(state.domain_bytes()) == 3 * slots.DOMAIN_ROW_BYTES


def test_slots_do_not_share_a_cell() -> None:
    names = [n for n, v in vars(slots).items() if n.isupper() and isinstance(v, int)]
    cells = names[names.index("FRAMED") : names.index("AREA_BYTES")]
    values = [vars(slots)[n] for n in cells]
    assert len(set(values)) == len(values) == 54
    assert all(v % 8 == 0 and v < slots.AREA_BYTES for v in values)


def test_a_new_connection_forgets_what_was_half_received() -> None:
    state = StreamState(GtidPosition(), framed=True)
    state[slots.GROUP], state[slots.EVENT_LEFT], state[slots.PACKET_LEFT] = slots.GROUP_STANDALONE, 5, 6
    state[slots.OFFSET], state[slots.COMMITTED_OFFSET], state[slots.ACK_POSITION] = 900, 700, 44
    state.reset_stream(semi_sync=True, strict=True)
    assert [state[s] for s in (slots.GROUP, slots.EVENT_LEFT, slots.PACKET_LEFT, slots.ACK_POSITION)] == [0, 0, 0, 0]
    assert (state[slots.OFFSET], state[slots.SEMI_SYNC], state[slots.CHECKSUM]) == (700, 1, -1)


def test_more_domains_than_a_position_may_have() -> None:
    with pytest.raises(ConfigError, match="4097"):
        StreamState(GtidPosition(tuple(Gtid(d, 1, 1) for d in range(MAX_DOMAINS + 1))), framed=True)
    state = StreamState(GtidPosition(tuple(Gtid(d, 1, 1) for d in range(MAX_DOMAINS))), framed=True)
    assert type(refusal(slots.TOO_MANY_DOMAINS, state, "bin.000001")) is RelayError
