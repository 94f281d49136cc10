"""The position that the rows of tables have to hold at, where the option endingPosition names one: a place of the past.

In: the options. Out: the offset there, once the server has got to it: a server that is behind is waited for, for
connectRetry. Refused: a position whose following transactions were removed, or of another history, or still not
reached then; a time to come.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replica.errors import AmbiguousPositionError, ConfigError, PositionLostError, PositionPurgedError
from replica.protocol.gtid import GtidPosition, covers
from streaming_source.driver.relay_directory import private_base
from streaming_source.planning.feed import ReplicaFeed

if TYPE_CHECKING:
    from replica.options.places import Position
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions

POLL_S: Final = 0.2
"""How often a server that is behind is asked; each time is a login."""
_PURGED: Final = (
    "The tables are brought back to a position by the changes behind it. Name a later one, or leave endingPosition out."
)
_ANOTHER: Final = (
    "endingPosition has to be a position of this very server: SELECT @@gtid_binlog_pos tells its newest, "
    "mariadb-replica position that of a time."
)


def offset_at_end(options: SourceOptions) -> SourceOffset:
    """Return the offset of endingPosition, or of the end of the binlog.

    Raises:
        ConfigError: the server has not got to it, or the time is still to come.
        PositionPurgedError: transactions behind it were removed.
        PositionLostError: it is of another history.
        ReplicaError: the server cannot be asked.
    """
    end: Position = options.ending_position or "latest"
    # A position that was purged is never another one: rows would be those of a later place.
    asking = ReplicaFeed(replace(options, starting_position=end, fail_on_data_loss=True), private_base())
    try:
        if isinstance(end, GtidPosition):
            _await(asking, end, options.connection.connect_retry_s)
        return asking.starting_offset()
    except AmbiguousPositionError:
        raise
    except PositionLostError as error:
        hint = _PURGED if isinstance(error, PositionPurgedError) else _ANOTHER
        raise type(error)(error.message, code=error.code, sqlstate=error.sqlstate, hint=hint) from None
    finally:
        asking.close()


def _await(asking: ReplicaFeed, position: GtidPosition, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not covers(reached := asking.server_position(), position):
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"endingPosition {position} is not reached: the binlog is at {reached or 'its beginning'}, and was "
                f"waited for {patience_s:g} s.",
                hint="Read up to a position that this server has, or wait longer for a replica that is behind "
                "(connectRetry).",
            )
        time.sleep(POLL_S)
