"""Who is answered: with the token, over TLS; and that what cannot be used is refused at the start."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from replica.commands.status import _fetch_record
from replica.daemon import http as daemon_http
from replica.daemon.config import DaemonConfig
from replica.daemon.http import MAX_LOCAL_CLIENTS, MIN_TOKEN, Guard, HttpServer, as_json, as_metrics, read_token
from replica.errors import ConfigError, DisconnectedError
from tests.fixtures.network.certificates import Certificates
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "0123456789abcdef-a-token"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.in_folder(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\na second line\n")
    return path


@contextlib.contextmanager
def serving(**options: object) -> Iterator[int]:
    config = DaemonConfig.parse({"user": "repl", "http_listen": "127.0.0.1:9306"} | options)
    routes = {
        "/metrics": lambda: as_metrics(b"x 1\n"),
        "/healthz": lambda: as_json(200, {}),
        "/status": lambda: as_json(200, record().model_dump(mode="json")),
    }
    server = HttpServer(("127.0.0.1", 0), routes, Guard.of(config))
    server.start()
    try:
        yield int(server.address.rpartition(":")[2])
    finally:
        server.stop()


def ask(port: int, path: str, authorization: str = "", trusted: Path | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if trusted is not None:
        context = ssl.create_default_context(cafile=trusted)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        if answer.status == 401:
            assert answer.getheader("WWW-Authenticate") == "Bearer"
        return answer.status, answer.read()


def test_only_who_brings_the_token_is_answered_and_probes_need_none(token_file: Path) -> None:
    with serving(http_token_file=str(token_file)) as port:
        assert ask(port, "/metrics", f"Bearer {TOKEN}") == (200, b"x 1\n")
        assert ask(port, "/healthz")[0] == 200
        wrong = ("", TOKEN, "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xe4")
        for authorization in wrong:
            for path in ("/metrics", "/status", "/none", "/healthz/"):
                code, body = ask(port, path, authorization)
                assert code == 401, (path, authorization)
                assert TOKEN.encode() not in body
                assert b"/metrics" not in body
        # Another token counts at once; without a file nobody is answered.
        token_file.write_text("another-token-of-today\n")
        assert ask(port, "/metrics", f"Bearer {TOKEN}")[0] == 401
        assert ask(port, "/metrics", "Bearer another-token-of-today")[0] == 200
        token_file.unlink()
        for authorization in ("", f"Bearer {TOKEN}", "Bearer "):
            assert ask(port, "/metrics", authorization) == (500, b'{"error": "ConfigError"}\n')


def test_without_options_everybody_is_answered_in_plain_text() -> None:
    with serving() as port:
        assert ask(port, "/metrics") == (200, b"x 1\n")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"x" * (MIN_TOKEN - 1), b"two words of a token\n", "ä".encode() * 20, b"\0" * 20]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"holds no token\. Its first line needs 16 or more") as refused:
        read_token(path)
    assert not content.strip() or content.strip() not in str(refused.value).encode()


def test_options_that_need_each_other_are_refused_alone(token_file: Path) -> None:
    for options in (
        {"http_listen": ":1", "http_tls_cert": "a"},
        {"http_listen": ":1", "http_tls_key": "a"},
        {"http_tls_cert": "a", "http_tls_key": "b"},
        {"http_token_file": str(token_file)},
    ):
        with pytest.raises(ConfigError, match=r"http_\w+ needs http_"):
            DaemonConfig.parse({"user": "repl"} | options)


def test_over_tls_it_answers_who_trusts_it_and_no_plain_text(certificates: Certificates, token_file: Path) -> None:
    files = {"http_tls_cert": str(certificates.server_cert), "http_tls_key": str(certificates.server_key)}
    with serving(http_token_file=str(token_file), **files) as port:
        assert ask(port, "/metrics", f"Bearer {TOKEN}", certificates.ca) == (200, b"x 1\n")
        assert ask(port, "/metrics", "", certificates.ca)[0] == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(port, "/metrics", f"Bearer {TOKEN}", certificates.stranger_ca)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(port, "/healthz")
        url = f"https://127.0.0.1:{port}"
        assert _fetch_record(url, token_file, certificates.ca) == record()
        with pytest.raises(DisconnectedError, match=r"answers 401 .* --token-file"):
            _fetch_record(url, None, certificates.ca)
        with pytest.raises(DisconnectedError, match=r"CERTIFICATE_VERIFY_FAILED.* --tls-ca"):
            _fetch_record(url, token_file, None)
        with pytest.raises(DisconnectedError, match=r"does not answer.* ask with https://"):
            _fetch_record(f"http://127.0.0.1:{port}", None, None)
        with pytest.raises(ConfigError, match="--tls-ca"):
            _fetch_record(url, token_file, token_file)


def test_clients_that_are_silent_in_the_handshake_keep_nobody_out(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_http, "HEAD_TIMEOUT_S", 0.2)
    files = {"http_tls_cert": str(certificates.server_cert), "http_tls_key": str(certificates.server_key)}
    with serving(**files) as port, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MAX_LOCAL_CLIENTS + 1)
        ]
        assert ask(port, "/metrics", "", certificates.ca)[0] == 200
        for client in silent:
            client.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(100) == b""  # cut off
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)


def test_files_that_are_no_certificate_are_refused_at_the_start(certificates: Certificates, token_file: Path) -> None:
    for cert, key in (
        (certificates.server_cert, certificates.client_key),
        (certificates.server_cert, token_file),
        (token_file, certificates.server_key),
        (certificates.server_cert, token_file.with_name("none")),
    ):
        with (
            pytest.raises(ConfigError, match=r"http_tls_cert .* cannot be used") as refused,
            serving(http_tls_cert=str(cert), http_tls_key=str(key)),
        ):
            pass
        assert TOKEN not in str(refused.value)
    with pytest.raises(ConfigError, match=r"http_token_file .* cannot be read"), serving(http_token_file="/none"):
        pass
