from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from replica.daemon.http import HUNG_S, Endpoints
from replica.daemon.status.record import Failure
from replica.live.progress import Progress
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from replica.daemon.status.observer import Observer


def endpoints(*, silent_s: float = 0.1, failed: Failure | None = None, **changed: Any) -> Endpoints:
    observer = cast("Observer", SimpleNamespace(failed=failed, record=lambda: record(**changed)))
    return Endpoints(observer, Progress(state="connecting"), silent_s=lambda: silent_s)


def answered(endpoints: Endpoints, path: str) -> tuple[int, Any]:
    code, kind, body = endpoints.routes()[path]()
    assert kind.startswith("application/json")
    return code, json.loads(body)


def test_a_loop_that_runs_is_healthy_whatever_the_primary_does() -> None:
    assert answered(endpoints(ready=False), "/healthz") == (200, {"healthy": True, "state": "connecting"})


def test_a_loop_that_hangs_or_has_failed_is_not() -> None:
    code, content = answered(endpoints(silent_s=2 * HUNG_S), "/healthz")
    assert (code, content["reason"]) == (503, "the receiving loop has not run for 60 s")
    failure = Failure(error="RelayError", message="", hint="", exit_code=70)
    assert answered(endpoints(failed=failure), "/healthz")[0] == 503


def test_ready_and_not() -> None:
    assert answered(endpoints(), "/readyz") == (200, {"ready": True, "reason": "", "behind_s": 0.0})
    code, content = answered(endpoints(ready=False, not_ready="90 s behind", behind={"seconds": 90.0}), "/readyz")
    assert (code, content) == (503, {"ready": False, "reason": "90 s behind", "behind_s": 90.0})


def test_the_record_and_the_metrics() -> None:
    assert answered(endpoints(), "/status") == (200, record().model_dump(mode="json"))
    code, kind, body = endpoints().routes()["/metrics"]()
    assert (code, kind.split(";")[0]) == (200, "text/plain")
    assert b"mariadb_replica_ready 1.0" in body
