"""The end of what a batch read reads: where the server's binlog, or the daemon's log, ends when the query is loaded.

In: the options. Out: a `ServerEnd`. It stands alone because each `load()` asks for it, also those of streams, in a
process that imports as little as it can.
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
    """Return where the server's binlog, or the daemon's log, ends at this moment."""
    directory = attached_directory(options)
    if directory is None:
        return asyncio.run(server_end(options.connection))
    from replica.relay_log.log import RelayLog
    from streaming_source.ranges.end import end_of_log

    log = RelayLog(directory)
    head = log.head()
    return ServerEnd(GtidPosition()) if head is None else end_of_log(log, head)
