"""Questions survive a broken connection, go to the hosts in turn, and end when nobody answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import DisconnectedError
from replica.handshake.login.login import ask
from replica.handshake.start.start import latest_position
from replica.protocol.gtid import GtidPosition
from tests.fixtures.mariadb import wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint
    from tests.fixtures.mariadb import MariaDb


@pytest.mark.server
async def test_a_refused_connection_is_tried_again(any_server: MariaDb) -> None:
    with FaultProxy(any_server.host, any_server.port) as proxy:
        proxy.refuse = True
        config = replica_config(any_server, port=proxy.port, connect_retry_s=60)

        def let_in_after_a_refusal() -> None:
            wait_until(lambda: proxy.accepted, "a connection that was refused")
            proxy.refuse = False

        opening = threading.Thread(target=let_in_after_a_refusal)
        opening.start()
        position = await ask(config, lambda _: latest_position())
        opening.join()
        assert proxy.accepted > 1
    assert position == GtidPosition.parse(any_server.gtid_binlog_pos())


@pytest.mark.server
async def test_the_next_host_is_asked_and_named(any_server: MariaDb) -> None:
    asked: list[str] = []

    def question(endpoint: Endpoint) -> Steps[GtidPosition]:
        asked.append(str(endpoint))
        return latest_position()

    there = f"{any_server.host}:{any_server.port}"
    await ask(replica_config(any_server, host=f"127.0.0.1:1,{there}", connect_retry_s=60), question)
    assert asked == [there]


@pytest.mark.server
async def test_it_gives_up_when_nobody_answers(any_server: MariaDb) -> None:
    config = replica_config(any_server, port=1, connect_retry_s=0.2)
    with pytest.raises(DisconnectedError, match=r"no connection to 127\.0\.0\.1:1"):
        await ask(config, lambda _: latest_position())
