"""Feeding a wire to a receiver in pieces, and reading back what the relay directory holds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from replica.protocol.gtid import Gtid
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.files.scan import group_ends
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import relay_numbers, relay_path
from replica.relay_writer.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from replica.relay_writer.writer import RelayWriter


def feed(
    receiver: Receiver,
    wire: bytes,
    sizes: Iterable[int] = (1 << 30,),
    *,
    acknowledge: Callable[[], None] | None = None,
) -> None:
    """Give `wire` to the receiver in pieces of the sizes, which repeat; what a session does, in its order."""
    rest = memoryview(wire)
    for size in itertools.cycle(sizes):
        if not rest:
            return
        space = receiver.space()
        piece = rest[: min(size, len(space))]
        space[: len(piece)] = piece
        rest = rest[len(piece) :]
        receiver.received(len(piece))
        if acknowledge is not None:
            acknowledge()
        receiver.publish()


def receive(
    relay: RelayWriter,
    wire: bytes,
    sizes: Iterable[int] = (1 << 30,),
    *,
    semi_sync: bool = False,
    stream_above: int | None = None,
) -> Receiver:
    receiver = Receiver(relay, semi_sync=semi_sync)
    if stream_above is not None:
        relay.state[Cell.stream_above] = stream_above
    feed(receiver, wire, sizes)
    return receiver


def stored(directory: Path) -> tuple[list[bytes], list[list[tuple[int, Gtid, int, int]]]]:
    """Group bytes and group ends of each relay file, as `streams.Reading` has them."""
    files, all_ends = [], []
    for number in relay_numbers(directory):
        path = relay_path(directory, number)
        head = read_file_head(path)
        data = path.read_bytes()[head.data_start :]
        if not data:
            continue  # a file that waits for its first group
        ends = group_ends(
            path,
            head.data_start,
            head.data_start + len(data),
            checksum=head.checksum,
            primary_position=head.primary.position,
        )
        files.append(data)
        all_ends.append(
            [
                (end - head.data_start, Gtid(domain, server, seq % (1 << 64)), timestamp, position)
                for end, domain, server, seq, timestamp, position in ends.tolist()
            ]
        )
    return files, all_ends
