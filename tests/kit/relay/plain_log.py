"""One primary's history as separate pieces, so that any part of it can be sent again from any place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.protocol.gtid import Gtid, GtidPosition
from tests.kit.binlog.primary import Primary, packet

if TYPE_CHECKING:
    import random


class Piece(NamedTuple):
    """An event group (with the position after it), or the events a file begins or ends with."""

    file: int
    events: tuple[bytes, ...]
    position: GtidPosition | None


class History:
    """`groups` transactions in two domains, in files of a few; some files without any."""

    def __init__(
        self, groups: int, start: GtidPosition, chance: random.Random, *, sizes: tuple[int, int], first: int = 100
    ) -> None:
        primary, position = Primary(zero_positions=True), start
        self.pieces: list[Piece] = []
        self.positions = [start]
        file = 0
        primary.open_file(f"bin.{file:06d}")
        self._take(primary, file, None)
        for number in range(groups):
            if chance.random() < 0.12:
                for _ in range(chance.choice([1, 1, 3])):
                    file += 1
                    primary.rotate(f"bin.{file:06d}")
                    self._take(primary, file, None)
            gtid = Gtid(number % 3 // 2, 1, first + number)
            if chance.random() < 0.2:
                primary.statement(gtid)
            else:
                primary.transaction(gtid, (chance.randrange(*sizes),), chance.choice(["xid", "commit"]))
            position = position.advance(gtid)
            self.positions.append(position)
            self._take(primary, file, position)
        self._rests: dict[int, bytes] = {}
        self.groups = [b"".join(piece.events) for piece in self.pieces if piece.position is not None]

    def _take(self, primary: Primary, file: int, position: GtidPosition | None) -> None:
        events = primary.events
        if position is None and self.pieces:  # the real ROTATE ends the file before; the artificial one begins this
            self.pieces.append(Piece(file - 1, (events.pop(0),), None))
        self.pieces.append(Piece(file, tuple(events), position))
        events.clear()

    def wire(self, done: int, until: int | None = None, *, semi_sync: bool = True) -> list[bytes]:
        """What a primary sends to a replica that has `done` groups: packets, each event of a group's end asks."""
        first = [at for at, piece in enumerate(self.pieces) if piece.position is not None][done:]
        begin = first[0] if first else len(self.pieces)
        file = self.pieces[begin].file if first else self.pieces[-1].file
        head = next(
            at
            for at, piece in enumerate(self.pieces)
            if piece.file == file and piece.position is None and len(piece.events) == 3
        )
        packets, left = [], (until if until is not None else len(self.groups)) - done
        for piece in (self.pieces[head], *self.pieces[begin:]):
            if piece.position is not None:
                if not left:
                    break
                left -= 1
            last = len(piece.events) - 1
            for at, event in enumerate(piece.events):
                packets.append(packet(event, semi_sync=semi_sync, ack=piece.position is not None and at == last))
        return packets

    def rest(self, done: int) -> bytes:
        if done not in self._rests:
            self._rests[done] = b"".join(self.wire(done))
        return self._rests[done]

    def count(self, position: GtidPosition) -> int:
        """How many groups lie before `position`; ValueError where it is none of this history's."""
        return self.positions.index(position)
