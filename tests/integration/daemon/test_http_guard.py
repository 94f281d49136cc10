"""A daemon whose HTTP side wants a token and TLS, asked by the program that has both."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import CACHE, PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.certificates import Certificates
from tests.fixtures.ports import reserved_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

SECRET = "marker-of-a-secret"
TOKEN = "marker-of-a-token-0123456789"
PROGRAM = [sys.executable, "-m", "replica"]


def asked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def endpoint_in(answer: subprocess.CompletedProcess[str]) -> str:
    return str(json.loads(answer.stdout)["status"]["connection"]["endpoint"])


def test_status_asks_with_the_token_over_tls(tmp_path: Path, any_server: MariaDb) -> None:
    certificates = Certificates.in_folder(CACHE / "certificates")
    any_server.add_user("repl", SECRET)
    token_file, log = tmp_path / "token", tmp_path / "log"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    with reserved_port() as port:
        options = {
            "host": f"{any_server.host}:{any_server.port}",
            "user": "repl",
            "relay-dir": tmp_path / "relay",
            "http-listen": f"127.0.0.1:{port}",
            "http-token-file": token_file,
            "http-tls-cert": certificates.server_cert,
            "http-tls-key": certificates.server_key,
        }
        command = [*PROGRAM, "run", *(f"--{name}={value}" for name, value in options.items())]
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET}
        with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=environment, cwd=PROJECT) as daemon:
            try:
                wait_until(lambda: daemon.poll() is not None or any_server.dump_threads(), "the daemon streams")
                url = f"https://127.0.0.1:{port}"
                trusted = ssl.create_default_context(cafile=certificates.ca)
                with urllib.request.urlopen(f"{url}/healthz", context=trusted, timeout=60) as answer:  # noqa: S310
                    assert json.loads(answer.read())["healthy"] is True
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    urllib.request.urlopen(f"{url}/metrics", context=trusted, timeout=60)  # noqa: S310
                asking = [*PROGRAM, "status", "--json", f"--url={url}", f"--tls-ca={certificates.ca}"]
                allowed = [*asking, f"--token-file={token_file}"]
                wait_until(lambda: endpoint_in(asked(*allowed)), "the record names the host")
                with_token = asked(*allowed)
                assert endpoint_in(with_token) == options["host"]
                without = asked(*asking)
                assert without.returncode == 40
                assert "answers 401 Unauthorized" in without.stderr
            finally:
                daemon.terminate()
                print(log.read_text())  # where it failed
    assert daemon.returncode == 0
    assert TOKEN not in log.read_text() + with_token.stdout + with_token.stderr + without.stderr
