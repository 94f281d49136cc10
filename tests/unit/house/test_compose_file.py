"""docker-compose.yml as text: no port that may be taken, nothing writable but volumes.

tests/integration/daemon/test_compose.py runs it where there is a container engine.
"""

from __future__ import annotations

from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[3]
SERVICES = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]


def test_no_port_is_taken_unless_it_is_asked_for() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert ports == ["127.0.0.1:${PRIMARY_PORT:-}:3306", "127.0.0.1:${METRICS_PORT:-}:9306"]


def test_the_daemon_has_no_rights_that_it_does_not_need() -> None:
    replica = SERVICES["replica"]
    assert replica["read_only"] is True
    assert replica["cap_drop"] == ["ALL"]
    image = (PROJECT / "Dockerfile").read_text(encoding="utf-8")
    written = [volume.partition(":")[2] for volume in replica["volumes"]]
    assert written == ["/var/lib/replica", "/home/replica/kernels"]
    assert "\nUSER replica\n" in image
    assert f"NUMBA_CACHE_DIR={written[1]} " in image
    assert f"VOLUME {written[0]}\n" in image
