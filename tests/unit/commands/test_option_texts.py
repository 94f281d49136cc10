from __future__ import annotations

import pytest
from pydantic import SecretStr

from replica.commands.option_texts import default, written
from replica.config import ReplicaConfig
from replica.daemon.config import DaemonConfig


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("relay_max_bytes", 4 << 30, "4g"),
        ("relay_max_bytes", (1 << 20) + 1, "1048577"),
        ("heartbeat_s", 0.5, "0.5s"),
        ("heartbeat_s", 90.0, "90s"),
        ("retain_s", 7 * 86_400.0, "7d"),
        ("semi_sync", True, "true"),
        ("host", ("db1", "db2:3307"), "db1,db2:3307"),
        ("http_listen", ("::1", 9306), "[::1]:9306"),
        ("http_listen", ("", 9306), ":9306"),
        ("password", SecretStr("hunter2"), "********"),
        ("relay_dir", None, ""),
        ("port", 3306, "3306"),
    ],
)
def test_values_as_people_write_them(name: str, value: object, text: str) -> None:
    assert written(name, value) == text


@pytest.mark.parametrize("name", DaemonConfig.model_fields)
def test_what_is_written_is_read_back_as_the_default(name: str) -> None:
    text = default(DaemonConfig, name)
    if text:
        assert getattr(DaemonConfig.parse({"user": "u", name: text}), name) == DaemonConfig.model_fields[name].default


def test_a_default_may_differ_between_the_daemon_and_other_replicas() -> None:
    assert default(ReplicaConfig, "reconnect_retry_s") == "10m"
    assert default(DaemonConfig, "reconnect_retry_s") == "365d"
    assert default(DaemonConfig, "server_id") == ""
