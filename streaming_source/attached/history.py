"""Check that a relay log has the same history as an offset, if both name the same GTID.

Sequence numbers start again when a primary is reset, so two transactions may have one GTID. `check_history` compares
the offset with the log that contains its GTID. If both come from one server, the GTID must be at the same place of that
server's binlog. After a failover the log comes from another server and places differ, so the check compares the
transactions themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import DataLossError
from replica.relay_log.location import RelayLocation, relay_path
from streaming_source.ranges.cutting import file_head, origin_of

if TYPE_CHECKING:
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.log import RelayLog
    from streaming_source.offsets.offset import SourceOffset

HINT: Final = (
    "The primary was reset, or restored from a copy, and has used the sequence number for another transaction. Start "
    "with a new checkpoint, and set startingPosition to the position up to which the sink has changes."
)
POSITION_BITS: Final = 32
"""Width in bits of positions in events. The higher bits that a log knows depend on where its dump began."""


def check_history(log: RelayLog, offset: SourceOffset) -> None:
    """Refuse a log that has another transaction at the offset's GTID.

    Raises:
        DataLossError: the log has another transaction there.
    """
    location = log.locate(offset.position, offset.primary)
    if location is None or offset.primary is None or offset.server_id is None:
        return
    end = end_of_group(log, location)
    if end is None:
        return
    server_id, uid, last = origin_of(log, end)
    known = uid is not None and offset.uid is not None
    if (uid != offset.uid) if known else (server_id != offset.server_id):
        difference = last.difference(offset.last) if last is not None and offset.last is not None else ""
        if difference:
            raise DataLossError(
                f"the relay log {log.directory} now comes from another server, and has another transaction at "
                f"{offset.position}: {difference}.",
                hint=HINT,
            )
        return
    found = log.at(end).primary
    if _low(found) != _low(offset.primary):
        raise DataLossError(
            f"in the relay log {log.directory}, {offset.position} is at {found.file}:{found.position} of server "
            f"{offset.server_id}, but this query read it at {offset.primary.file}:{offset.primary.position}.",
            hint=HINT,
        )


def end_of_group(log: RelayLog, location: RelayLocation) -> RelayLocation | None:
    """Return a place as the end of the group before it; None if the file of that group was removed.

    This group may be in the previous file.
    """
    if location.offset and location.offset > file_head(relay_path(log.directory, location.file)).data_start:
        return location
    before = RelayLocation(location.file - 1, 0)
    try:
        return before._replace(offset=relay_path(log.directory, before.file).stat().st_size)
    except FileNotFoundError:
        return None


def _low(place: BinlogPosition) -> tuple[str, int]:
    return place.file, place.position % (1 << POSITION_BITS)
