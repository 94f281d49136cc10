"""One event of the server's binlog, by file and offset, over a connection of its own.

A dump by file and position, with server id 0: the server then neither waits for more nor takes us for another replica
of the same id. The connection is good for nothing else afterwards.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from replica.handshake.registration import CAPABILITY_GTID, Query, Steps
from replica.protocol.commands import com_binlog_dump
from replica.protocol.constants import DumpFlag, EventType, HeaderFlag
from replica.protocol.header import parse_header

if TYPE_CHECKING:
    from replica.handshake.login import Login
    from replica.protocol.gtid import BinlogPosition

MAX_DUMP_POSITION = (1 << 32) - 1
"""COM_BINLOG_DUMP has 32 bits for the offset; events beyond 4 GiB can be reached by GTID only."""

_BEFORE_THE_EVENT = (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION)


async def event_at(login: Login, place: BinlogPosition) -> bytes | None:
    """The whole event, checksum included, that starts at `place`; None at the end of the binlog.

    Raises:
        ServerError: the server has no such file, or no event starts there (1236).

    """
    await login.run(_announce())
    # With annotations, or the server would leave one out and send the event after it.
    flags = DumpFlag.NON_BLOCK | DumpFlag.SEND_ANNOTATE_ROWS
    command = com_binlog_dump(0, flags=flags, file=place.file, position=place.position)
    async with contextlib.aclosing(login.dump(command)) as events:
        async for event in events:
            header = parse_header(memoryview(event))
            if header.event_type not in _BEFORE_THE_EVENT and not header.flags & HeaderFlag.ARTIFICIAL:
                return event
    return None


def _announce() -> Steps[None]:
    yield Query("SET @master_binlog_checksum = @@global.binlog_checksum")
    yield Query(f"SET @mariadb_slave_capability = {CAPABILITY_GTID}")
