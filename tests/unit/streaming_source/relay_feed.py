"""A `Feed` without a server: a real relay log, and groups that a test lets arrive when it wants to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.handshake.start import Latest
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay.log import RelayLog
from replica.relay.writer import RelayWriter
from streaming_source.offset import SourceOffset
from tests.unit.relay.driving import receive
from tests.unit.relay.streams import Primary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from replica.relay.location import RelayHead, RelayLocation


class RelayFeed:
    """`arriving` runs at each wait: what it lets arrive is there when the wait returns."""

    def __init__(self, folder: Path, groups: Iterable[str] = (), *, begin: str = "") -> None:
        self.log = RelayLog(folder)
        self.folder = folder
        self.starts: list[SourceOffset] = []
        self.target = GtidPosition()
        self.position = GtidPosition.parse(begin)
        self.arriving: Callable[[], None] = lambda: None
        self.closed = False
        self.full = False
        self.epoch = 0
        self.down_s = 0.0
        self.latest = Latest(GtidPosition(), frozenset(), GtidPosition())
        self.primary = Primary()
        self._writer = RelayWriter.open(folder, start=self.position, max_file_bytes=1 << 20)
        self.started = True
        if groups:
            self.arrive(*groups)

    def arrive(self, *groups: str, rows: int = 20) -> None:
        """Groups 'domain-server-sequence', one transaction each of `rows` bytes of row images.

        With 'prepare x' behind it a group prepares XA transaction x, with 'commit x' or 'rollback x' it ends it.
        """
        position = self.primary.position
        self.primary.events.clear()
        self.primary.open_file()  # every arrival is a connection of its own
        self.primary.position = max(position, self.primary.position)
        for group in groups:
            gtid, *xa = group.split()
            match xa:
                case []:
                    self.primary.transaction(Gtid.parse(gtid), rows=(rows,))
                case ["prepare", name]:
                    self.primary.xa_prepare(Gtid.parse(gtid), name, rows=(rows,))
                case [verb, name]:
                    self.primary.xa_end(Gtid.parse(gtid), name, verb.upper())
        receive(self._writer, self.primary.wire())

    def starting_offset(self) -> SourceOffset:
        head = self.head()
        return SourceOffset(head.position, head.position, anchor=True)

    def start(self, offset: SourceOffset) -> None:
        self.starts.append(offset)
        self.started = True

    def release(self, keep_from: RelayLocation) -> None:
        self.log.purge_before(keep_from)

    def head(self) -> RelayHead:
        return self._writer.head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:  # noqa: ARG002
        self.arriving()
        return self.head().location > location

    def server_position(self) -> GtidPosition:
        return self.target

    def server_id(self, location: RelayLocation) -> int | None:
        return 77 if location.offset else None

    def latest_and_prepared(self) -> Latest:
        return self.latest

    def close(self) -> None:
        self.closed = True
        self._writer.close()
