"""The past position at which rows of tables have to hold, if the option endingPosition names one.

`offset_at_end` returns the offset there. It waits up to connectRetry for a server that has not reached the position.
Errors: the server has removed the transactions after the position; the position is from another history; the server
does not reach it in time; the time is in the future.
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
"""Seconds between two questions to a server that lags. Each question is a login."""
_PURGED: Final = (
    "Rows at a past position are made by undoing the changes after it. Set a later endingPosition, or remove the "
    "option."
)
_ANOTHER: Final = (
    "Set endingPosition to a position of this server. SELECT @@gtid_binlog_pos shows its newest position, "
    "mariadb-replica position finds the position of a time."
)


def offset_at_end(options: SourceOptions) -> SourceOffset:
    """Return the offset of endingPosition, or of the end of the binlog.

    Raises:
        ConfigError: the server has not reached it, or the time is in the future.
        PositionPurgedError: transactions after it were removed.
        PositionLostError: it is from another history.
        ReplicaError: the server cannot be asked.
    """
    end: Position = options.ending_position or "latest"
    # fail_on_data_loss, because a later position in place of a purged one would give other rows.
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
                f"endingPosition {position} is not reached: the binlog is at {reached or 'its beginning'}, after "
                f"{patience_s:g} s of waiting.",
                hint="Set endingPosition to a position that this server has. If the server is a replica that lags, "
                "raise connectRetry to wait longer.",
            )
        time.sleep(POLL_S)
