"""The ACK that was lost with its connection: given again for groups which the next dump skips because we have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.constants import HeaderFlag
from replica.protocol.events.binlog_file import encode_gtid_list
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import CRC32, FILE, SERVER_ID, Primary, packet
from tests.kit.relay.driving import feed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SKIPPED_TO = 5000


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path) as opened:
        yield opened


def begin(relay: RelayWriter, *, semi_sync: bool = True) -> tuple[Receiver, Primary]:
    """A dump whose first groups are skipped: its file begins, and the server is at SKIPPED_TO."""
    primary = Primary.dump()
    receiver = Receiver(relay, semi_sync=semi_sync)
    feed(receiver, primary.wire(semi_sync=semi_sync))
    primary.events.clear()
    primary.position = SKIPPED_TO
    return receiver, primary


def listed(position: int, flags: int = HeaderFlag.ARTIFICIAL) -> bytes:
    event = encode_gtid_list([Gtid(0, 1, 9)], server_id=SERVER_ID, checksum=CRC32, log_pos=position, flags=flags)
    return packet(event, semi_sync=True)


def test_the_end_of_skipping_is_acknowledged_and_again_when_it_moves(relay: RelayWriter) -> None:
    receiver, _ = begin(relay)
    assert receiver.take_ack() is None
    for position in (SKIPPED_TO, SKIPPED_TO + 100):  # the second domain's start lies behind the first one's
        feed(receiver, listed(position))
        assert receiver.take_ack() == BinlogPosition(FILE, position)


def test_a_list_that_stands_in_the_file_says_nothing_about_us(relay: RelayWriter) -> None:
    receiver, _ = begin(relay)
    feed(receiver, listed(SKIPPED_TO, flags=0))
    assert receiver.take_ack() is None


def test_a_heartbeat_is_acknowledged_if_it_is_ahead_of_the_last_ack(relay: RelayWriter) -> None:
    receiver, primary = begin(relay)
    first, second = BinlogPosition(FILE, SKIPPED_TO), BinlogPosition(FILE, SKIPPED_TO + 41)
    for expected in (first, None, second, None):
        primary.events.clear()
        primary.position = (expected or receiver.primary or first).position
        primary.heartbeat()
        feed(receiver, primary.wire(semi_sync=True))
        assert receiver.take_ack() == expected


def test_an_ack_that_was_asked_for_covers_what_was_skipped(relay: RelayWriter) -> None:
    receiver, primary = begin(relay)
    primary.transaction(Gtid(0, 1, 10))
    *rest, last = primary.events
    feed(receiver, b"".join(packet(e, semi_sync=True) for e in rest) + packet(last, semi_sync=True, ack=True))
    assert receiver.take_ack() == BinlogPosition(FILE, primary.position)
    feed(receiver, listed(SKIPPED_TO))
    assert receiver.take_ack() is None


def test_no_ack_goes_back_behind_what_was_skipped(relay: RelayWriter) -> None:
    # 10.5 asks for its binlog checkpoints too; the last group of ours in this connection may lie far before them.
    receiver, primary = begin(relay)
    primary.position = 256
    primary.transaction(Gtid(0, 1, 1))
    feed(receiver, primary.wire(semi_sync=True) + listed(SKIPPED_TO))
    assert receiver.take_ack() == BinlogPosition(FILE, SKIPPED_TO)
    primary.events.clear()
    primary.position = SKIPPED_TO
    primary.checkpoint()
    feed(receiver, primary.wire(semi_sync=True, ack=True))
    assert receiver.take_ack() is None
    primary.events.clear()
    primary.rotate("bin.000008")
    primary.transaction(Gtid(0, 1, 10))
    *rest, last = primary.events
    feed(receiver, b"".join(packet(e, semi_sync=True) for e in rest) + packet(last, semi_sync=True, ack=True))
    assert receiver.take_ack() == BinlogPosition("bin.000008", primary.position), "in a new file positions begin anew"


def test_nothing_is_acknowledged_in_the_middle_of_a_group(relay: RelayWriter) -> None:
    # Where it had to start in a hole, the server sends its list just behind a GTID event.
    receiver, primary = begin(relay)
    primary.transaction(Gtid(0, 1, 10))
    first, *rest = primary.events
    feed(receiver, packet(first, semi_sync=True) + listed(SKIPPED_TO + 40))
    assert receiver.take_ack() is None
    feed(receiver, b"".join(packet(event, semi_sync=True) for event in rest))
    assert relay.position == GtidPosition((Gtid(0, 1, 10),))


def test_without_semi_sync_nothing_is_acknowledged(relay: RelayWriter) -> None:
    receiver, primary = begin(relay, semi_sync=False)
    primary.heartbeat()
    feed(receiver, primary.wire())
    assert receiver.take_ack() is None
