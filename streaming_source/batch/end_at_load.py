"""The end of a batch read: the end of the server's binlog, or of the daemon's log, when the query is loaded.

This is a separate module because each `load()` calls it, also for streams, in a process that imports as little as
possible.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from replica.handshake.start.end import ServerEnd, server_end
from replica.protocol.gtid import GtidPosition
from streaming_source.attached.folder import attached_directory

if TYPE_CHECKING:
    from streaming_source.options.source_options import SourceOptions


def end_at_load(options: SourceOptions) -> ServerEnd:
    """Return the end of the server's binlog, or of the daemon's log, at this moment."""
    directory = attached_directory(options)
    if directory is None:
        return asyncio.run(server_end(options.connection))
    from replica.relay_log.log import RelayLog
    from streaming_source.ranges.end import end_of_log

    log = RelayLog(directory)
    head = log.head()
    return ServerEnd(GtidPosition()) if head is None else end_of_log(log, head)
