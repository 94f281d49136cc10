"""The registration of the part of a daemon's relay log that a query still needs.

`HeldFiles` registers the places that the query has finished with, and the daemon's retention respects them. The
registration stays when the query stops, so that its files exist when the query resumes. A thread renews it, because
Spark calls no method of the source during a long batch. If the daemon has removed files that the query needed, reading
on is an error.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from replica.errors import DataLossError, ReplicaError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import ReaderRegistration, registered_readers
from replica.relay_log.log import RelayLog
from streaming_source.attached.name import ReaderName, take_name

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayLocation
    from streaming_source.options.source_options import SourceOptions

TOUCH_EVERY_S: Final = 10.0
CLAIM_S: Final = 5.0
"""Seconds to repeat a claim, because retention may be removing the oldest file at that moment. It takes moments."""
CLAIM_POLL_S: Final = 0.05
WRITE_EVERY_S: Final = 1.0
"""Seconds between two writes of the registration within one file. Retention works in whole files, so these writes only
inform people who watch.
"""

_log = logging.getLogger(__name__)


class HeldFiles:
    """The registration of one query. It does nothing before `claim`. One thread calls it."""

    def __init__(self, directory: Path, options: SourceOptions) -> None:
        self._directory = directory
        self._options = options
        self._name: ReaderName | None = None
        self._registration: ReaderRegistration | None = None
        self.lost: DataLossError | None = None
        """Why files were removed that this query had registered for; None if none were."""
        self._kept: RelayLocation | None = None
        self._written_s = 0.0
        self._alive: threading.Thread | None = None
        self._stop = threading.Event()

    def claim(self) -> None:
        """Take the name. A known name keeps what it kept before; a new name keeps everything in the log.

        Raises:
            RelayError: another running query has the name, or the folder cannot be written.
        """
        if self._name is not None and self._name.held:
            return
        self._name = take_name(self._directory, self._options)
        self._registration = ReaderRegistration(self._directory, self._name.text)
        try:
            self._registration.check()
        except DataLossError as error:
            self.lost = error  # matters only if the query asks for what was removed
        if all(reader.name != self._name.text for reader in registered_readers(self._directory)):
            self._keep_everything(self._registration)
        if self._alive is None:
            self._alive = threading.Thread(target=self._stay_alive, daemon=True)
            self._alive.start()

    @property
    def name(self) -> str:
        """The name, or '' before `claim`."""
        return "" if self._name is None else self._name.text

    def _keep_everything(self, registration: ReaderRegistration) -> None:
        log = RelayLog(self._directory)
        deadline = time.monotonic() + CLAIM_S
        self._kept = None
        while self._kept is None:
            oldest = log.oldest()
            try:
                registration.keep_from(oldest, str(log.first_position() or GtidPosition()))
            except DataLossError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(CLAIM_POLL_S)
            else:
                self._kept = oldest

    def _stay_alive(self) -> None:
        while not self._stop.wait(TOUCH_EVERY_S):
            try:
                if self._registration is not None:
                    self._registration.touch()
            except ReplicaError as error:  # the planning thread meets the same error, and ends the query with it
                _log.warning("%s", error)

    def is_news(self, location: RelayLocation) -> bool:
        """Return True if this place is worth a write of the registration."""
        kept, due = self._kept, time.monotonic() - self._written_s >= WRITE_EVERY_S
        return location != kept and (due or kept is None or location.file != kept.file)

    def keep_from(self, location: RelayLocation, position: GtidPosition) -> None:
        """Release whole files before the place."""
        if self._registration is not None:
            self._registration.keep_from(location, str(position))
            self._kept, self._written_s = location, time.monotonic()

    @property
    def was_dropped(self) -> bool:
        """Whether the daemon has removed files that this query still needed."""
        try:
            self.check()
        except DataLossError as error:
            self.lost = error
            return True
        return False

    def check(self) -> None:
        """Raise DataLossError if the daemon has removed files that this query still needed."""
        if self._registration is not None:
            self._registration.check()

    def leave(self) -> None:
        """End the registration: the daemon keeps nothing for this query any more."""
        self._stop.set()
        if self._registration is not None:
            self._registration.close()
        self.close()

    def close(self) -> None:
        """Close the name. The registration stays, because the query may resume later."""
        self._stop.set()
        if self._name is not None:
            self._name.close()
