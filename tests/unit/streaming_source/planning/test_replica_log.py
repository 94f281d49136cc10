from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from replica.options.config import Endpoint
from streaming_source.planning.feed import replica_log

if TYPE_CHECKING:
    import pytest


def test_a_setting_of_a_server_is_told_once_and_everything_else_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="replica"):
        for host in ("told-once-1", "told-once-1", "told-once-2"):
            log = replica_log([Endpoint(host, 3306)])
            log.warning("server setting", what="binlog_checksum is NONE", fix="SET")
            log.info("connected", endpoint=host)
        log.warning("server setting", what="read_only", fix="SET")
    told = [message.split("'")[1] for message in caplog.messages]
    assert told == ["server setting", "connected", "connected", "server setting", "connected", "server setting"]
