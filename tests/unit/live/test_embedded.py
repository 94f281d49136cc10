from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, DisconnectedError, RelayError
from replica.live.embedded import EmbeddedReplica, library_logger
from replica.options.config import ReplicaConfig
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.lock import RelayLock

if TYPE_CHECKING:
    from pathlib import Path


def test_events_go_through_logging_so_that_the_host_process_decides(caplog: pytest.LogCaptureFixture) -> None:
    log = library_logger()
    with caplog.at_level(logging.INFO, logger="replica"):
        log.info("connected", endpoint="db1:3306")
        log.debug("not at this level")
    assert caplog.messages == ["event='connected' endpoint='db1:3306'"]


def test_construction_touches_nothing(tmp_path: Path) -> None:
    EmbeddedReplica(ReplicaConfig.parse({"user": "repl"}), tmp_path / "relay").close()
    assert list(tmp_path.iterdir()) == []


def test_a_permanent_error_is_raised_from_every_call_and_frees_the_directory(tmp_path: Path) -> None:
    config = ReplicaConfig.parse({"user": "repl", "password_file": tmp_path / "missing"})
    with EmbeddedReplica(config, tmp_path / "relay") as replica:
        replica.start(GtidPosition())
        seen = []
        for _ in range(2):
            with pytest.raises(ConfigError, match="password_file") as caught:
                replica.wait_for(GtidPosition.parse("0-1-1"), 60)
            seen.append(caught.value)
        assert seen[0] is not seen[1]
        with pytest.raises(ConfigError):
            replica.server_position()
        RelayLock(tmp_path / "relay").close()


def test_questions_end_when_nobody_answers(tmp_path: Path) -> None:
    config = ReplicaConfig.parse({"user": "repl", "port": 1, "connect_retry_s": 0.1, "backoff_initial_s": 0.01})
    with EmbeddedReplica(config, tmp_path) as replica, pytest.raises(DisconnectedError):
        replica.server_position()


def test_a_closed_replica_stays_closed(tmp_path: Path) -> None:
    replica = EmbeddedReplica(ReplicaConfig.parse({"user": "repl"}), tmp_path)
    replica.close()
    with pytest.raises(RelayError):
        replica.start(None)
