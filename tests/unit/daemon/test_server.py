from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from replica.daemon import http as daemon_http
from replica.daemon.http import MAX_CLIENTS, MAX_LOCAL_CLIENTS, HttpServer, as_json, as_metrics
from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


def broken() -> tuple[int, str, bytes]:
    raise ValueError("a bug, with a secret in it")


heard, answering = threading.Semaphore(0), threading.Event()


def waiting() -> tuple[int, str, bytes]:
    heard.release()
    assert answering.wait(60)
    return as_json(200, {"waited": True})


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    routes = {
        "/metrics": lambda: as_metrics(b"x 1\n"),
        "/readyz": lambda: as_json(503, {"ready": False}),
        "/broken": broken,
        "/waiting": waiting,
    }
    server = HttpServer(("127.0.0.1", 0), routes)
    server.start()
    host, _, port = server.address.rpartition(":")
    yield host, int(port)
    server.stop()


def asked(
    address: tuple[str, int], path: str, method: str = "GET", *, client: str = "127.0.0.1"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*address, timeout=60, source_address=(client, 0))
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_answers_by_path(address: tuple[str, int]) -> None:
    code, headers, body = asked(address, "/metrics?ignored=1")
    assert (code, body) == (200, b"x 1\n")
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert asked(address, "/readyz")[0] == 503
    code, _, body = asked(address, "/else")
    assert (code, json.loads(body)["paths"]) == (404, ["/metrics", "/readyz", "/broken", "/waiting"])
    assert asked(address, "/../etc/passwd")[0] == 404


def test_head_has_no_body_and_nothing_else_is_allowed(address: tuple[str, int]) -> None:
    code, headers, body = asked(address, "/metrics", "HEAD")
    assert (code, headers["Content-Length"], body) == (200, "4", b"")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked(address, "/metrics", method)[0] == 501


def test_a_bug_is_an_answer_without_its_words(address: tuple[str, int]) -> None:
    code, _, body = asked(address, "/broken")
    assert (code, json.loads(body)) == (500, {"error": "ValueError"})


def test_too_much_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        # As much as it reads of a line that does not end: what it left unread would make its answer a reset.
        client.sendall(b"GET /".ljust(65_537, b"x"))
        assert b" 414 " in client.recv(1000)
    with socket.create_connection(address) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n")
        assert b" 431 " in client.recv(1000)


def test_slow_clients_are_cut_off_and_do_not_lock_others_out(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_http, "HEAD_TIMEOUT_S", 0.2)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address)) for _ in range(MAX_LOCAL_CLIENTS)]
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.05):
                for client in slow:
                    with contextlib.suppress(OSError):
                        client.sendall(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        deadline = time.monotonic() + 60
        code = 0
        while code != 200 and time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                code = asked(address, "/metrics")[0]
        ended.set()
        dripping.join()
    assert code == 200


def test_an_address_in_use_is_a_configuration_error(address: tuple[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"http_listen 127.0.0.1:{address[1]} cannot be used"):
        HttpServer(address, {})


REMOTE = "127.0.0.2"


@pytest.fixture
def far_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes from REMOTE is of another machine."""
    monkeypatch.setattr(daemon_http, "is_local", lambda host: host != REMOTE)


def connected(address: tuple[str, int], client: str) -> socket.socket:
    return socket.create_connection(address, timeout=60, source_address=(client, 0))


@pytest.mark.usefixtures("far_clients")
@pytest.mark.parametrize(("client", "places"), [(REMOTE, MAX_CLIENTS), ("127.0.0.1", MAX_LOCAL_CLIENTS)])
def test_who_asks_is_answered_at_once_though_idle_clients_hold_every_place(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, client: str, places: int
) -> None:
    monkeypatch.setattr(daemon_http, "HEAD_TIMEOUT_S", 3600.0)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(address, client)) for _ in range(places)]
        for oldest in idle[:2]:
            assert asked(address, "/metrics", client=client)[0] == 200
            assert oldest.recv(1) == b"", "the oldest was hung up on"
            idle.append(stack.enter_context(connected(address, client)))  # takes the place that was given back


@pytest.mark.usefixtures("far_clients")
def test_this_machine_has_places_of_its_own_and_who_is_answered_keeps_his(address: tuple[str, int]) -> None:
    answering.clear()
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connected(address, REMOTE)) for _ in range(MAX_CLIENTS)]
        for client in busy:
            client.sendall(b"GET /waiting HTTP/1.0\r\n\r\n")
        for _ in busy:
            assert heard.acquire(timeout=60)
        with pytest.raises((OSError, http.client.HTTPException)):
            asked(address, "/metrics", client=REMOTE)
        assert asked(address, "/metrics")[0] == 200
        answering.set()
        for client in busy:
            assert b'"waited"' in client.makefile("rb").read()


def test_a_client_that_says_nothing_is_hung_up_on_and_a_slow_answer_is_not_cut(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_http, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(daemon_http, "CLIENT_TIMEOUT_S", 3600.0)
    answering.clear()
    with connected(address, "127.0.0.1") as slow:
        slow.sendall(b"GET /waiting HTTP/1.0\r\n\r\n")
        assert heard.acquire(timeout=60)
        with connected(address, "127.0.0.1") as silent:
            assert silent.recv(1) == b""
        answering.set()
        assert b'"waited"' in slow.makefile("rb").read()


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("fe80::1%eth0", False), ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_which_clients_are_of_this_machine(host: str, local: bool) -> None:  # noqa: FBT001
    assert daemon_http.is_local(host) == local


@pytest.mark.parametrize(("host", "client"), [("", "127.0.0.1"), ("::1", "::1")])
def test_other_addresses(host: str, client: str) -> None:
    server = HttpServer((host, 0), {"/x": lambda: as_json(200, {})})
    server.start()
    try:
        assert asked((client, int(server.address.rpartition(":")[2])), "/x", client=client)[0] == 200
    finally:
        server.stop()
