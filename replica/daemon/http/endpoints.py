"""Answers of the daemon's HTTP interface, by path.

* /metrics: Prometheus.
* /healthz: 200 while the receiving loop answers and has not failed; 503 with the reason. For liveness probes. It does
  not depend on the primary, because restarting the daemon does not help there.
* /readyz: 200 while connected and not further behind than ready_lag_s; 503 with the reason.
* /status: the status record.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from replica.daemon.http.metrics import Metrics
from replica.daemon.http.server import Answer, as_json, as_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.daemon.http.server import Route
    from replica.daemon.status.observer import Observer
    from replica.live.progress import Progress

HUNG_S: Final = 30.0
"""Seconds after which a loop that has not run counts as dead. A disk may delay an fsync for seconds."""


class Endpoints:
    """Answers, one method for each path. `silent_s` returns for how many seconds the receiving loop has not run."""

    def __init__(self, observer: Observer, progress: Progress, *, silent_s: Callable[[], float]) -> None:
        self._observer = observer
        self._progress = progress
        self._silent_s = silent_s
        self._metrics = Metrics(observer.record, progress.ack_latency)

    def routes(self) -> dict[str, Route]:
        return {
            "/metrics": lambda: as_metrics(self._metrics.text()),
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/status": lambda: as_json(HTTPStatus.OK, self._observer.record().model_dump(mode="json")),
        }

    def healthz(self) -> Answer:
        silent_s = self._silent_s()
        if self._observer.failed is not None:
            return as_json(HTTPStatus.SERVICE_UNAVAILABLE, {"healthy": False, "reason": "failed"})
        if silent_s > HUNG_S:
            reason = f"the receiving loop has not run for {silent_s:.0f} s"
            return as_json(HTTPStatus.SERVICE_UNAVAILABLE, {"healthy": False, "reason": reason})
        return as_json(HTTPStatus.OK, {"healthy": True, "state": self._progress.state})

    def readyz(self) -> Answer:
        record = self._observer.record()
        code = HTTPStatus.OK if record.ready else HTTPStatus.SERVICE_UNAVAILABLE
        content = {"ready": record.ready, "reason": record.not_ready, "behind_s": record.behind.seconds}
        return as_json(code, content)
