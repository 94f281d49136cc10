"""Small read-only HTTP server for the daemon's endpoints, with an optional token and TLS.

In: GET and HEAD requests within the limits of http.server (100 header lines). Out: the answer of the path's route, 404
without a route, 401 without the token. Liveness probes use this server, so idle clients must not lock others out. A
request has to arrive within HEAD_TIMEOUT_S. If all places are taken, the client that has been silent longest is
disconnected. Clients of this machine have separate places. Clients cost the receiving path only processor time.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import ipaddress
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from replica.daemon.metrics import CONTENT_TYPE, Metrics
from replica.errors import MAY_READ, ConfigError
from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from replica.daemon.config import DaemonConfig
    from replica.daemon.status.observer import Observer
    from replica.live.progress import Progress

# The guard reads the token's file at every request that needs it, so that a new token takes effect at once. While the
# file cannot be read, no request is answered. The token must never appear in a message, answer or log.


OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths without a token. They reveal only the health, and most probes cannot send a header."""
MIN_TOKEN: Final = 16
"""Minimum length of a token. A shorter one can be guessed like a password."""
MAX_TOKEN_BYTES: Final = 4096
"""Maximum length of a token in bytes: longer header lines are refused by common servers and scrapers."""


class Guard(NamedTuple):
    """Access control of the HTTP interface. By default it admits everyone, in plain text."""

    token_file: Path | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, config: DaemonConfig) -> Guard:
        """Return the guard for these options.

        Raises:
            ConfigError: a file cannot be used.
        """
        if config.http_token_file is not None:
            read_token(config.http_token_file)
        return cls(config.http_token_file, _context(config))

    def admits(self, path: str, authorization: str | None) -> bool:
        """Return True if a request may be answered.

        Args:
            path: path of the request.
            authorization: its Authorization header, if any.

        Raises:
            ConfigError: the token's file cannot be read any more.
        """
        if self.token_file is None or path in OPEN:
            return True
        wanted = f"Bearer {read_token(self.token_file)}"
        # Constant time, because the duration of an answer must not reveal how much of a guess was right.
        return hmac.compare_digest((authorization or "").encode(), wanted.encode())


def read_token(path: Path) -> str:
    """Return the first line of a token's file.

    Raises:
        ConfigError: the file cannot be read, or holds no token.
    """
    try:
        with path.open("rb") as file:
            line = file.read(MAX_TOKEN_BYTES).split(b"\n", 1)[0].strip()
    except OSError as error:
        raise ConfigError(f"http_token_file {path} cannot be read: {error.strerror}.", hint=MAY_READ) from None
    if len(line) < MIN_TOKEN or not line.isascii() or not line.decode().isprintable() or b" " in line:
        raise ConfigError(
            f"http_token_file {path} holds no token.",
            hint=f"Its first line needs {MIN_TOKEN} or more letters and digits, for example from: openssl rand -hex 32",
        )
    return line.decode()


def _context(config: DaemonConfig) -> ssl.SSLContext | None:
    if config.http_tls_cert is None or config.http_tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password here, OpenSSL asks a terminal for the passphrase of a protected key, and waits.
        context.load_cert_chain(config.http_tls_cert, config.http_tls_key, password=b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"http_tls_cert {config.http_tls_cert} with key {config.http_tls_key} cannot be used: {error}.",
            hint="PEM files are expected: the certificate, followed by those up to its authority, and its key.",
        ) from None
    return context


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
    """Return an answer with a JSON body."""
    return code, JSON_TYPE, json.dumps(content).encode() + b"\n"


def as_metrics(text: bytes) -> Answer:
    """Return an answer with a body in Prometheus' text format."""
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
    requested: bool = False
    """Whether the client's request has arrived."""


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
                silent = next((client for client in same if not self._clients[client].requested), None)
                if silent is None:
                    return False  # socketserver closes it: all others are being answered
                del self._clients[silent]
                _cut_off(silent)
            self._clients[request] = _Client(now_s + HEAD_TIMEOUT_S, local)
        return True

    def request_arrived(self, request: socket.socket) -> None:
        """Record that the request of a connection has arrived; the time limit of the answer now applies."""
        with self._lock:
            client = self._clients.get(request)
            if client is not None:
                client.requested, client.deadline_s = True, time.monotonic() + CLIENT_TIMEOUT_S

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
        """Ignore a client that disconnected. A route that raises an error is answered with 500."""


def is_local(host: str) -> bool:
    """Return True if a client's address is a loopback address of this machine."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a dual-stack socket
    return (mapped or address).is_loopback


def _cut_off(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # On the socket itself, because a TLS shutdown would need the client's own thread. That thread wakes up and
        # ends.
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
        valid = super().parse_request()
        if valid:
            self.server.request_arrived(self.connection)
        return valid

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


# /healthz must not depend on the primary: it drives liveness probes, and restarting the daemon does not repair the
# primary. It fails if the receiving loop hangs or has failed. /readyz also requires a connection and a lag of at most
# ready_lag_s.


HUNG_S: Final = 30.0
"""Seconds after which a loop that has not run counts as dead. A disk may delay an fsync for seconds."""


class Endpoints:
    """Answers, one method for each path. `silent_s` returns for how many seconds the receiving loop has not run."""

    def __init__(self, observer: Observer, progress: Progress, *, silent_s: Callable[[], float]) -> None:
        self._observer = observer
        self._progress = progress
        self._silent_s = silent_s
        self._metrics = Metrics(observer.record, progress.ack_latency)

    def routes(self) -> dict[str, Route]:
        return {
            "/metrics": lambda: as_metrics(self._metrics.text()),
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/status": lambda: as_json(HTTPStatus.OK, self._observer.record().model_dump(mode="json")),
        }

    def healthz(self) -> Answer:
        silent_s = self._silent_s()
        if self._observer.failed is not None:
            return as_json(HTTPStatus.SERVICE_UNAVAILABLE, {"healthy": False, "reason": "failed"})
        if silent_s > HUNG_S:
            reason = f"the receiving loop has not run for {silent_s:.0f} s"
            return as_json(HTTPStatus.SERVICE_UNAVAILABLE, {"healthy": False, "reason": reason})
        return as_json(HTTPStatus.OK, {"healthy": True, "state": self._progress.state})

    def readyz(self) -> Answer:
        record = self._observer.record()
        code = HTTPStatus.OK if record.ready else HTTPStatus.SERVICE_UNAVAILABLE
        content = {"ready": record.ready, "reason": record.not_ready, "behind_s": record.behind.seconds}
        return as_json(code, content)
