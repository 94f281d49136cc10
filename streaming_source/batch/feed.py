"""A `Feed` (places.py) over a relay log that holds a range already: no groups arrive, and no server is asked.

`FetchedFeed` takes the folder and the offset at which the range begins. A place outside of the range is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import RelayError
from replica.relay_log.log import RelayLog
from streaming_source.offsets.data_loss import Losses
from streaming_source.ranges.cutting import Origin, origin_of
from streaming_source.ranges.end import end_of_log

if TYPE_CHECKING:
    from pathlib import Path

    from replica.errors import RelayFileRemovedError
    from replica.handshake.start.end import ServerEnd
    from replica.handshake.start.start import Latest
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from streaming_source.offsets.offset import SourceOffset


class FetchedFeed:
    """The feed of one range. It removes no files."""

    started = True
    full = False
    epoch = 0
    down_s = 0.0

    def __init__(self, directory: Path, begin: SourceOffset) -> None:
        self.log = RelayLog(directory)
        self.losses = Losses()
        self._begin = begin

    def starting_offset(self) -> SourceOffset:
        return self._begin

    def start(self, offset: SourceOffset) -> SourceOffset:
        return offset

    def release(self, keep_from: RelayLocation) -> None:
        """Keep all files. They exist as long as the folder."""

    def begin_again(self, error: RelayFileRemovedError) -> None:
        raise error  # this process removes no file, so another program did

    def head(self) -> RelayHead:
        head = self.log.head()
        if head is None:
            raise RelayError(f"{self.log.directory} was removed while it was being planned.", hint="load() again.")
        return head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:  # noqa: ARG002  (no groups arrive)
        if self.head().location > location:
            return True
        raise RelayError(
            f"{self.log.directory} ends at {self.head().position}, before the end of the requested range.",
            hint="Another program changed it: load() again.",
        )

    def server_end(self) -> ServerEnd:
        return end_of_log(self.log, self.head())

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:  # noqa: ARG002  (no server is asked)
        return False

    def latest_and_prepared(self) -> Latest | None:
        return None

    def origin(self, location: RelayLocation) -> Origin:
        return origin_of(self.log, location)

    @property
    def spool(self) -> Path:
        return self.log.directory / "tables"

    def close(self) -> None:
        """Do nothing, because the feed holds no resources."""
