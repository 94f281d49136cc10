"""A relay log whose oldest files another process removes, looked at so that this is no error.

Halving over the files may meet one that has just gone, although the place that is asked for is there still: then the
look is repeated. In and out: as `RelayLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from replica.errors import DataLossError, RelayError
from replica.relay.location import RelayLocation, relay_numbers
from replica.relay.log import RelayLog
from replica.relay.xa import Prepared, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.gtid import GtidPosition

_Result = TypeVar("_Result")


class SharedLog(RelayLog):
    def locate(self, position: GtidPosition) -> RelayLocation | None:
        return self._steadily(lambda: RelayLog.locate(self, position))

    def first_position(self) -> GtidPosition | None:
        return self._steadily(lambda: RelayLog.first_position(self))

    def prepared_at(self, location: RelayLocation) -> Prepared:
        """The XA transactions open at a place, as far back as the log goes."""
        return self._steadily(lambda: follow(self, [(self.oldest(), location)], ())[1])

    def oldest(self) -> RelayLocation:
        return RelayLocation(min(relay_numbers(self.directory), default=1), 0)

    def _steadily(self, look: Callable[[], _Result]) -> _Result:
        while True:
            before = self.oldest()
            try:
                return look()
            except (DataLossError, RelayError, FileNotFoundError):  # its head, its sidecar, itself
                if self.oldest() <= before:
                    raise
