"""Options of the daemon, in addition to those of every replica (options/config.py).

In: values from the command line, the environment and a TOML file. Out: a checked `DaemonConfig`. The help texts are
also the reference documentation, so a new option needs one.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (pydantic looks it up)
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from replica.options.config import ReplicaConfig
from replica.options.values import MAX_SECONDS, Bytes, Listen, Seconds, one_of
from replica.protocol.plain_text import has_control
from replica.relay_log.directory.disk import Access

SlowReaders = Literal["drop", "pause"]
LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
MAX_CLUSTER: Final = 64
"""Maximum length of a cluster's name, which labels every time series and is a column of `status`."""


def _cluster(text: str) -> str:
    if not 1 <= len(text.strip()) <= MAX_CLUSTER or has_control(text):
        raise ValueError(f"a cluster's name has 1 to {MAX_CLUSTER} printable characters")
    return text.strip()


def _access(text: str) -> str:
    Access.parse(text)
    return text.strip()


ClusterName = Annotated[str, AfterValidator(_cluster)]
RelayAccess = Annotated[str, AfterValidator(_access)]


class DaemonConfig(ReplicaConfig):
    """All options of `mariadb-replica run`."""

    reconnect_retry_s: Seconds = Field(
        MAX_SECONDS,
        description="How long to retry a lost connection before giving up: a daemon waits for its primary",
    )
    relay_max_bytes: Bytes = Field(
        4 << 30, description="Files that registered readers still need are kept up to this total size: see slow_readers"
    )
    retain_s: Seconds = Field(86_400.0, description="Relay files are kept this long after their last transaction")
    retain_bytes: Bytes = Field(
        2 << 30, description="Relay files are kept up to this total size; beyond it the oldest are removed first"
    )
    slow_readers: Annotated[SlowReaders, BeforeValidator(one_of(SlowReaders))] = Field(
        "drop",
        description="Files a registered reader still needs are kept up to relay_max_bytes; then drop removes them and "
        "that reader gets an error, pause stops receiving until the reader continues",
    )
    reader_expiry_s: Seconds = Field(7 * 86_400.0, description="A reader that was not seen for this long is forgotten")
    relay_access: RelayAccess = Field(
        "group",
        description="Who may read the relay log, and with it every row: owner, group, group:NAME (of which the "
        "replica's user is a member) or all users of this machine",
    )
    http_listen: Listen | None = Field(
        None, description="Address for /metrics, /healthz, /readyz and /status: host:port. Unset: none"
    )
    http_token_file: Path | None = Field(
        None, description="File whose first line is the token that /metrics and /status ask for (Authorization: Bearer)"
    )
    http_tls_cert: Path | None = Field(
        None,
        description="Certificate of http_listen (PEM, followed by its chain): it then speaks TLS only",
    )
    http_tls_key: Path | None = Field(None, description="Key of http_tls_cert (PEM)")
    monitor_s: Seconds = Field(
        10.0, description="How often to ask the primary for its position; sooner if everything may be received"
    )
    ready_lag_s: Seconds = Field(60.0, description="/readyz fails when the replica is further behind than this")
    cluster: ClusterName | None = Field(
        None,
        description="Name of the cluster that this daemon follows: a label of its metrics, a field of its log lines "
        "and of its status. Unset: none",
    )
    log_format: Annotated[LogFormat, BeforeValidator(one_of(LogFormat))] = Field(
        "json", description="json, one object a line, or text for people; on standard error"
    )
    log_level: Annotated[LogLevel, BeforeValidator(one_of(LogLevel))] = Field(
        "info", description="Lowest level that is logged: debug, info, warning or error"
    )

    @model_validator(mode="after")
    def _check_http_guard(self) -> Self:
        for needing, needed in (
            ("http_tls_cert", "http_tls_key"),
            ("http_tls_key", "http_tls_cert"),
            ("http_tls_cert", "http_listen"),
            ("http_token_file", "http_listen"),
        ):
            if getattr(self, needing) and not getattr(self, needed):
                raise ValueError(f"{needing} needs {needed}")
        return self


DAEMON_OPTIONS: dict[str, str] = DaemonConfig.help()
"""Every option of the daemon: name -> help text."""
