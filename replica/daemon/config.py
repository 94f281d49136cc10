"""The options that only the daemon has, beside those of every replica: the second half of the one table of options."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from replica.config import Bytes, ReplicaConfig, Seconds

SlowReaders = Literal["drop", "pause"]

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]*)):(\d{1,5})")


def _listen(value: object) -> object:
    """'127.0.0.1:9306', ':9306' or '[::1]:9306' as (host, port); an empty host is every address of the machine."""
    if not isinstance(value, str):
        return value
    match = _LISTEN.fullmatch(value.strip())
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise ValueError("is not host:port, such as 127.0.0.1:9306")
    return match[1] or match[2], int(match[3])


Listen = Annotated[tuple[str, int], BeforeValidator(_listen)]


class DaemonConfig(ReplicaConfig):
    """What `mariadb-replica run` takes."""

    retain_s: Seconds = Field(86_400.0, description="Relay files are kept this long after their last transaction")
    retain_bytes: Bytes = Field(2 << 30, description="And this much of them: beyond it the oldest go first")
    slow_readers: SlowReaders = Field(
        "drop",
        description="Files a registered reader still needs are kept up to relay_max_bytes; then drop removes them and "
        "that reader gets an error, pause stops receiving until it went on",
    )
    reader_expiry_s: Seconds = Field(7 * 86_400.0, description="A reader not seen for so long is forgotten")
    http_listen: Listen | None = Field(
        None, description="Address for /metrics, /healthz, /readyz and /status: host:port. Unset: none"
    )
    monitor_s: Seconds = Field(10.0, description="How often the primary is asked how far it is")
    ready_lag_s: Seconds = Field(60.0, description="/readyz says no when the replica is further behind than this")


DAEMON_OPTIONS: dict[str, str] = DaemonConfig.help()
"""Every option of the daemon: name -> help text."""
