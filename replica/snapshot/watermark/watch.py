"""Watch of the server that tables are read from: its low watermark and its load.

`SourceWatch` polls one of the hosts once a second in a thread. `seen` is the low watermark with its host, and `loaded`
is the reason to pause. After an error, or if the relay log is copied from another server, the watch moves to the next
host. The queries write nothing and only read process-wide counters.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from replica.errors import PrerequisiteError, ReplicaError
from replica.snapshot.errors import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.handshake.registration import Rows
    from replica.options.config import ReplicaConfig
    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.snapshot.connection.connection import SnapshotConnection
    from replica.snapshot.pace import Pace

POLL_S: Final = 1.0
"""Poll interval in seconds; a position counts after 10 s."""
FIRST_POLL_S: Final = 0.1
"""Poll interval in seconds until the first watermark, which an idle server gives with the first answer."""
CLOSE_S: Final = 10.0
"""Maximum wait for the thread in seconds when closing."""

_LOAD: Final = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_running', 'Innodb_history_list_length')"

_log = logging.getLogger(__name__)


class WatermarkSource(Protocol):
    """Source of one server's low watermark, polled repeatedly."""

    def poll(self) -> None: ...

    def watermark(self) -> RelayHead | None: ...

    def keep_from(self) -> RelayLocation | None: ...

    @property
    def reason(self) -> str: ...

    def close(self) -> None: ...


class Seen(NamedTuple):
    """Low watermark of a host: its snapshots surely see everything up to `low`."""

    low: RelayHead
    host: Endpoint


class SourceWatch:
    """Watching thread.

    `seen`: None until the watermark is known. `waits_for`: why it is unknown. `loaded`: why to pause, '' for no reason.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        pace: Pace,
        hosts: Sequence[Endpoint],
        source: Callable[[Endpoint], WatermarkSource],
        connect: Callable[[Endpoint], SnapshotConnection],
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.seen: Seen | None = None
        self.loaded = ""
        self.waits_for = ""
        self._config = config
        self._pace = pace
        self._hosts = hosts
        self._turn = 0
        self._make_source = source
        self._connect = connect
        self._on_change = on_change
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._source: WatermarkSource | None = None
        self._connection: SnapshotConnection | None = None
        self._refused: set[Endpoint] = set()
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="table-reader-watch", daemon=True)

    @property
    def host(self) -> Endpoint:
        """Host that tables are read from."""
        return self._hosts[self._turn % len(self._hosts)]

    def keep_from(self) -> RelayLocation | None:
        """Return the first relay log location that a later low watermark may have; None before the first poll."""
        source, seen = self._source, self.seen
        places = [None if source is None else source.keep_from(), None if seen is None else seen.low.location]
        return min((place for place in places if place is not None), default=None)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the thread and close its connections."""
        self._ending.set()
        self._hang_up()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                failed = False
                try:
                    self._ask()
                except ReplicaError as error:
                    failed = True
                    self._fail(error)
                self._ending.wait(self._pause_s(failed=failed))
        except Exception as error:  # noqa: BLE001  (the next call of `check` raises it)
            if not self._ending.is_set():
                self._failure = error
                self._on_change()
        finally:
            self._hang_up()

    def _ask(self) -> None:
        host = self.host
        if self._source is None:
            self._source = self._make_source(host)
        self._source.poll()
        low = self._source.watermark()
        self.waits_for = self._source.reason
        seen = None if low is None else Seen(low, host)
        changed, self.seen = seen != self.seen, seen
        if self._connection is None:
            self._connection = self._connect(host)
        self._judge(self._connection.rows(_LOAD))
        self._failing_since = None
        self._refused.clear()
        if changed:
            self._on_change()

    def _judge(self, rows: Rows) -> None:
        status = {row[0]: row[1] for row in rows}
        running = int(status.get("Threads_running") or 0)
        history = int(status.get("Innodb_history_list_length") or 0)
        reason = ""
        if running > self._pace.most_threads_running:
            reason = f"the server, which runs {running} statements at once"
        elif history > self._pace.most_history:
            reason = f"the server's purge, which is {history} transactions behind"
        if bool(reason) != bool(self.loaded):
            _log.info("reading tables %s", f"waits for {reason}" if reason else "continues")
        self.loaded = reason

    def _fail(self, error: ReplicaError) -> None:
        """Move to the next host after an error that is transient or specific to the host; raise any other error."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if isinstance(error, PrerequisiteError):
            self._refused.add(self.host)
            if len(self._refused) == len(set(self._hosts)) and now - self._failing_since >= self._patience_s:
                raise error
        elif not passes(error) or self._tried_enough(now):
            raise error
        self.waits_for = "a connection"
        self._hang_up()
        self.seen = None
        self._turn += 1

    def _tried_enough(self, now: float) -> bool:
        return self._failing_since is not None and now - self._failing_since > self._config.reconnect_retry_s

    @property
    def _patience_s(self) -> float:
        """Time in seconds for which all hosts may be refused; with several hosts, the stream may be about to fail
        over.
        """
        return self._config.reconnect_retry_s if len(self._hosts) > 1 else 0.0

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        source, self._source = self._source, None
        for one in (connection, source):
            if one is not None:
                with contextlib.suppress(ReplicaError, OSError):
                    one.close()

    def _pause_s(self, *, failed: bool) -> float:
        if failed:
            return min(self._config.backoff_max_s, self._config.backoff_initial_s * 4)
        return FIRST_POLL_S if self.seen is None else POLL_S
