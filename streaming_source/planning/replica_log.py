"""The log of a query's replica: what it has to say of a server's settings is said once in a process.

In: the servers that the replica asks. Out: its logger. An audit reads every table with a replica of its own, one after
the other in the same processes of Spark, and each of them would give the same advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from replica.embedded import library_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from structlog.typing import FilteringBoundLogger

    from replica.config import Endpoint

_SAID: Final[set[tuple[str, str]]] = set()
"""The servers, and what was said of them."""


def replica_log(servers: Iterable[Endpoint]) -> FilteringBoundLogger:
    """Return the logger of a replica of one of these servers."""
    where = ",".join(map(str, servers))

    def once(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event["event"] == "server setting":
            if (where, event["what"]) in _SAID:
                raise structlog.DropEvent
            _SAID.add((where, event["what"]))
        return event

    return library_logger(once)
