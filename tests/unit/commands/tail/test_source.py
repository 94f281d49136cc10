from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.commands.tail.source import check_relay_directory, relay_directory, warnings_logger
from replica.errors import RelayError
from tests.unit.commands.tail.relay_logs import recorded_log

if TYPE_CHECKING:
    from pathlib import Path


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    check_relay_directory(tmp_path)  # a daemon may be just about to begin
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(RelayError, match="holds no relay log"):
        check_relay_directory(tmp_path)
    with pytest.raises(RelayError, match="No such file"):
        check_relay_directory(tmp_path / "nowhere")
    with pytest.raises(RelayError, match="Not a directory"):
        check_relay_directory(tmp_path / "letter")


def test_without_an_account_nobody_is_asked(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions")
    with relay_directory(tmp_path, None) as source:
        assert source.lookup is None
        assert source.replica is None
        assert source.log.head() == log.head()


def test_only_what_explains_a_silence_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    log = warnings_logger()
    log.info("connected")
    log.warning("server setting", what="binlog_row_metadata is NO_LOG")
    log.error("failed", message="is raised anyway")
    assert capsys.readouterr().err == ""
    warnings_logger().warning("disconnected", message="it went away")
    assert "it went away" in capsys.readouterr().err
