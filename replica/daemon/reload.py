"""Reload of options at SIGHUP while the daemon runs.

In: the running options, and a function that reads them again. Out: one log line with each option that changed and each
that needs a restart. Options that cannot be read or are invalid change nothing, and the line has the reason. The
connection stays, unless its server is no longer among the hosts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.config import DaemonConfig
    from replica.daemon.logs import LogWriter
    from replica.daemon.retain import Retaining
    from replica.live.client import Replica

RELOADED: Final = frozenset(
    {"host", "port", "unix_socket", "retain_s", "retain_bytes", "relay_max_bytes", "reader_expiry_s", "log_level"}
)
"""Options that change without a restart: the servers, the retention, and the log level."""


class Reloader:
    """Handler of SIGHUP. Call `ask()` in the loop's thread; `serve()` is the task that does the work.

    Args:
        running: the configuration with which the daemon was started.
        again: reads the configuration again from its sources; it raises ConfigError.
        logs: the log, whose level may change.
    """

    def __init__(self, running: DaemonConfig, again: Callable[[], DaemonConfig], logs: LogWriter) -> None:
        self._running = running
        self._again = again
        self._logs = logs
        self._log: FilteringBoundLogger = logs.logger
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Request a reload. Before the relay log is open, the request waits."""
        self._asked.set()

    async def serve(self, replica: Replica, retaining: Retaining) -> None:
        """Handle each request, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                # In a thread, because a disk that hangs must not keep the loop from acknowledging.
                new = await asyncio.to_thread(self._again)
            except ReplicaError as error:
                self._log.error("not reloaded", **describe(error))
                continue
            except Exception:  # noqa: BLE001  (a bug here must not end the replica)
                self._log.exception("internal error", part="reload")
                continue
            self._take(new, replica, retaining)

    def _take(self, new: DaemonConfig, replica: Replica, retaining: Retaining) -> None:
        different = differences(self._running, new)
        changed = [name for name in different if name in RELOADED]
        self._running = self._running.model_copy(update={name: getattr(new, name) for name in changed})
        replica.reload(self._running)
        retaining.reload(self._running)
        self._logs.set_level("info")  # for this line, whatever the old and the new level are
        self._log.info(
            "reloaded",
            changed=", ".join(changed),
            needs_restart=", ".join(name for name in different if name not in RELOADED),
        )
        self._logs.set_level(self._running.log_level)


def differences(running: DaemonConfig, new: DaemonConfig) -> list[str]:
    """Return the options that differ, in the order of the table. Two random server ids do not count as different."""
    drawn = {"server_id"} - running.model_fields_set - new.model_fields_set
    return [
        name
        for name in type(running).model_fields
        if name not in drawn and getattr(running, name) != getattr(new, name)
    ]
