"""The watch: what it makes of a server that is loaded, away, or another one than the relay log's. Servers are fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import AuthenticationError, DisconnectedError, PrerequisiteError, ServerError
from replica.options.config import ReplicaConfig
from replica.options.values import Endpoint
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.location import RelayHead, RelayLocation
from replica.snapshot.pace import Pace
from replica.snapshot.watermark import watch
from replica.snapshot.watermark.watch import SourceWatch
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS = [Endpoint("one", 3306), Endpoint("other", 3306)]
HEAD = RelayHead(RelayLocation(1, 500), GtidPosition.parse("0-1-5"), BinlogPosition("bin.000001", 500), 1)
OPTIONS = {"user": "u", "backoff_initial": "1ms", "backoff_max": "2ms"}


class Server:
    """What all hosts answer; `errors` are raised first, by host."""

    def __init__(self) -> None:
        self.errors: dict[str, list[Exception]] = {}
        self.status: dict[str, str] = {"Threads_running": "1", "Innodb_history_list_length": "0"}
        self.lower: RelayHead | None = HEAD
        self.open = 0

    def answer(self, host: Endpoint) -> None:
        waiting = self.errors.get(host.host, [])
        if waiting:
            raise waiting[0] if len(waiting) == 1 else waiting.pop(0)


class Source:
    reason = "words"

    def __init__(self, server: Server, host: Endpoint) -> None:
        self.server, self.host = server, host
        server.open += 1

    def poll(self) -> None:
        self.server.answer(self.host)

    def watermark(self) -> RelayHead | None:
        return self.server.lower

    def keep_from(self) -> RelayLocation | None:
        return RelayLocation(1, 4) if self.server.lower else None

    def rows(self, _: str) -> list[tuple[str, str]]:
        return list(self.server.status.items())

    def close(self) -> None:
        self.server.open -= 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(watch, "POLL_S", 0.001)
    monkeypatch.setattr(watch, "FIRST_POLL_S", 0.001)
    return Server()


@pytest.fixture
def begin(server: Server) -> Iterator[Any]:
    begun: list[SourceWatch] = []

    def make(hosts: list[Endpoint] = HOSTS[:1], retry: str = "60s") -> SourceWatch:
        config = ReplicaConfig.parse({**OPTIONS, "reconnect_retry": retry})

        def source(host: Endpoint) -> Any:
            return Source(server, host)

        begun.append(SourceWatch(config, Pace(), hosts, source, source))
        begun[-1].start()
        return begun[-1]

    yield make
    for one in begun:
        one.close()
    assert server.open == 0


def test_the_lower_position_is_told_with_its_host(server: Server, begin: Any) -> None:
    server.lower = None
    one = begin()
    wait_until(lambda: one.waits_for == "words", "there is none yet, for a reason")
    assert one.seen is None
    server.lower = HEAD
    wait_until(lambda: one.seen == (HEAD, HOSTS[0]), "there is one")


@pytest.mark.parametrize(
    ("variable", "said"), [("Threads_running", "9999999 statements"), ("Innodb_history_list_length", "9999999 trans")]
)
def test_a_loaded_server_is_left_alone(server: Server, begin: Any, variable: str, said: str) -> None:
    server.status[variable] = "9999999"
    one = begin()
    wait_until(lambda: said in one.loaded, "it says so")
    server.status[variable] = "0"
    wait_until(lambda: not one.loaded, "it goes on")


def test_a_host_that_is_away_gives_way_to_the_next_one(server: Server, begin: Any) -> None:
    one = begin(HOSTS)
    wait_until(lambda: one.seen == (HEAD, HOSTS[0]), "the first host is read")
    server.errors["one"] = [DisconnectedError("away")]
    wait_until(lambda: one.seen == (HEAD, HOSTS[1]), "the other one is")
    server.errors["other"] = [PrerequisiteError("the relay log is copied from another server")]
    server.errors["one"] = []
    wait_until(lambda: one.seen == (HEAD, HOSTS[0]), "the first one is again")
    one.check()


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        (AuthenticationError("denied"), "60s"),
        (PrerequisiteError("no binlog"), "60s"),
        (DisconnectedError("away"), "1ms"),
        (ServerError("locked", code=1205), "1ms"),
        (ZeroDivisionError("a fault"), "60s"),
    ],
)
def test_what_does_not_pass_is_raised(server: Server, begin: Any, error: Exception, retry: str) -> None:
    server.errors["one"] = [error]
    one = begin(retry=retry)

    def failed() -> bool:
        try:
            one.check()
        except type(error):
            return True
        return False

    wait_until(failed, "it is raised")
