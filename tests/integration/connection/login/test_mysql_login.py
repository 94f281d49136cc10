"""caching_sha2_password against MySQL, the server everybody has it from: through TLS, with its RSA key, remembered.

MariaDB has its plugin in no package, scripts/setup fetches no MySQL: run on its own, with MySQL in `$MARIADB_SERVERS`.
(What MySQL answered is replayed in every run: tests/unit/handshake/login/test_authentication.py.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import AuthenticationError
from replica.handshake.login.login import log_in
from replica.options.config import ReplicaConfig
from tests.fixtures.other_servers.mysql import MySql

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.mysql]

PASSWORDS = ("secret", "pässwört €🙂", "x" * 200)


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySql]:
    with MySql() as server:
        yield server


def account(server: MySql, password: str) -> None:
    """Made anew, so that the server remembers nothing."""
    server.sql("DROP USER IF EXISTS p@'%'")
    server.sql(f"CREATE USER p@'%' IDENTIFIED BY '{password}'")


def config(server: MySql, password: str, **options: object) -> ReplicaConfig:
    where = {} if "unix_socket" in options else {"host": "127.0.0.1", "port": server.port}
    return ReplicaConfig.parse({"user": "p", "password": password, **where, **options})


async def plugin(wanted: ReplicaConfig) -> str:
    login = await log_in(wanted, wanted.endpoints[0])
    login.close()
    return login.plugin


@pytest.mark.parametrize("password", PASSWORDS)
async def test_every_safe_way(mysql: MySql, password: str) -> None:
    key, ca, socket = mysql.datadir / "public_key.pem", mysql.datadir / "ca.pem", f"{mysql.folder}/s"
    for options in (
        {"tls": "required"},
        {"tls": "verify-ca", "tls_ca": ca},
        {"tls": "required", "compress": True},
        {"server_public_key": key},
        {"unix_socket": socket},
    ):
        account(mysql, password)
        assert await plugin(config(mysql, password, **options)) == "caching_sha2_password"
        assert await plugin(config(mysql, password)) == "caching_sha2_password", "now the server remembers us"


async def test_not_in_the_open_and_not_through_the_password(mysql: MySql) -> None:
    account(mysql, "secret")
    for options in ({}, {"tls": "verify-password"}):
        with pytest.raises(AuthenticationError, match="not safe"):
            await plugin(config(mysql, "secret", **options))
    assert await plugin(config(mysql, "secret", tls="required"))
    with pytest.raises(AuthenticationError, match="verify-password cannot work"):
        await plugin(config(mysql, "secret", tls="verify-password"))


async def test_wrong_and_empty_passwords(mysql: MySql) -> None:
    account(mysql, "right")
    for options in ({"tls": "required"}, {"server_public_key": mysql.datadir / "public_key.pem"}):
        for password in ("wrong", ""):
            with pytest.raises(AuthenticationError) as caught:
                await plugin(config(mysql, password, **options))
            assert caught.value.code == 1045
    account(mysql, "")
    assert await plugin(config(mysql, "")) == "caching_sha2_password"
