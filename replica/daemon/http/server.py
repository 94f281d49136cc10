"""Small read-only HTTP server for the daemon's endpoints, with an optional token and TLS.

In: GET and HEAD requests within the limits of http.server (100 header lines). Out: the answer of the path's route, 404
without a route, 401 without the token. Liveness probes use this server, so idle clients must not lock others out. A
request has to arrive within HEAD_TIMEOUT_S. If all places are taken, the client that has been silent longest is
disconnected. Clients of this machine have separate places. Clients cost the receiving path only processor time.
"""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from replica.daemon.http.guard import Guard
from replica.daemon.http.metrics import CONTENT_TYPE
from replica.errors import ConfigError
from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Answer = tuple[int, str, bytes]
"""Status code, Content-Type, body."""
Route: TypeAlias = "Callable[[], Answer]"

MAX_CLIENTS: Final = 8
"""Maximum number of remote clients: one or two scrapers, probes, and a person with a browser. Each costs a thread."""
MAX_LOCAL_CLIENTS: Final = 4
"""Maximum number of clients of this machine: its probe, `status --url`, and a person who investigates."""
HEAD_TIMEOUT_S: Final = 2.0
"""Seconds from the connection to the end of the request's head, however slowly a client sends bytes."""
CLIENT_TIMEOUT_S: Final = 10.0
"""Seconds from the end of the request's head to the last byte of the answer."""
JSON_TYPE: Final = "application/json; charset=utf-8"


def as_json(code: int, content: Mapping[str, object]) -> Answer:
    return code, JSON_TYPE, json.dumps(content).encode() + b"\n"


def as_metrics(text: bytes) -> Answer:
    return HTTPStatus.OK, CONTENT_TYPE, text


class HttpServer:
    """Server of `routes`, which maps a path to the function that answers it.

    Raises:
        ConfigError: the address cannot be used.
    """

    def __init__(self, listen: tuple[str, int], routes: Mapping[str, Route], guard: Guard | None = None) -> None:
        host, port = listen
        try:
            self._server = _Server(host, port, routes, guard or Guard())
        except OSError as error:
            raise ConfigError(
                f"http_listen {host}:{port} cannot be used: {error.strerror or error}.",
                hint="Another program listens there, or the address does not belong to this machine: choose another "
                "one.",
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="replica-http", daemon=True
        )

    @property
    def address(self) -> str:
        host, port = str(self._server.server_address[0]), self._server.server_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


@dataclass(slots=True)
class _Client:
    deadline_s: float
    local: bool
    asked: bool = False
    """Whether its request has arrived."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, routes: Mapping[str, Route], guard: Guard) -> None:
        self.routes = routes
        self.guard = guard
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, _Client] = {}  # oldest first
        every_address = not host
        if ":" in host or (every_address and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        self._dual = every_address and self.address_family == socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if self._dual else 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        # Without the DNS query for our own name that http.server makes here.
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "mariadb-replica", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        client, address = super().get_request()
        if self.guard.tls is not None:
            try:
                # The client's own thread does the handshake: here a silent client would lock all others out.
                client = self.guard.tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError):
                client.close()
                raise OSError from None  # socketserver takes OSError for a lost client
        return client, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        now_s, local = time.monotonic(), is_local(str(client_address[0]))
        with self._lock:
            same = [client for client, known in self._clients.items() if known.local == local]
            if len(same) >= (MAX_LOCAL_CLIENTS if local else MAX_CLIENTS):
                silent = next((client for client in same if not self._clients[client].asked), None)
                if silent is None:
                    return False  # socketserver closes it: all others are being answered
                del self._clients[silent]
                _cut_off(silent)
            self._clients[request] = _Client(now_s + HEAD_TIMEOUT_S, local)
        return True

    def asked(self, request: socket.socket) -> None:
        """Record that the request of a connection has arrived; the time limit of the answer now applies."""
        with self._lock:
            client = self._clients.get(request)
            if client is not None:
                client.asked, client.deadline_s = True, time.monotonic() + CLIENT_TIMEOUT_S

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Disconnect clients that exceeded their time limit.

        This runs between two requests and several times a second.
        """
        now_s = time.monotonic()
        with self._lock:
            for client in [client for client, known in self._clients.items() if known.deadline_s < now_s]:
                _cut_off(client)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Ignore a client that disconnected. An error of a route is answered as 500."""


def is_local(host: str) -> bool:
    """Return True if a client's address is of this machine's loopback."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a dual-stack socket
    return (mapped or address).is_loopback


def _cut_off(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Below TLS, whose shutdown would need the client's thread. That thread wakes up and ends.
        socket.socket.shutdown(client, socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = f"mariadb-replica/{__version__}"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_S

    def handle(self) -> None:
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        super().handle()

    def parse_request(self) -> bool:
        whole = super().parse_request()
        if whole:
            self.server.asked(self.connection)
        return whole

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        try:
            code, kind, content = self._answer_of(self.path.split("?", 1)[0])
        except Exception as error:  # noqa: BLE001  (whatever it is, the client has to receive an error)
            code, kind, content = as_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": type(error).__name__})
        self.send_response(code)
        if code == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _answer_of(self, path: str) -> Answer:
        if not self.server.guard.admits(path, self.headers.get("Authorization")):
            return as_json(HTTPStatus.UNAUTHORIZED, {"error": "the token of http_token_file is missing or wrong"})
        route = self.server.routes.get(path)
        if route is None:
            return as_json(HTTPStatus.NOT_FOUND, {"error": "not found", "paths": [*self.server.routes]})
        return route()

    def log_message(self, _format: str, *_arguments: Any) -> None:
        """Log nothing, because probes arrive every few seconds."""
