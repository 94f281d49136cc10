"""Every authentication plugin against the servers that have it: right, wrong, empty and foreign passwords, changes."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.errors import AuthenticationError, ProtocolError, ReplicaError
from replica.handshake.login.login import log_in
from replica.handshake.registration import Query
from replica.options.config import ReplicaConfig
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config
from tests.kit.some import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.handshake.registration import Rows, Steps

pytestmark = pytest.mark.server

PASSWORDS = ("secret", "pässwört €🙂", "with 'quotes' \\ and # signs", "x" * 200)
NATIVE, ED25519, PARSEC = "mysql_native_password", "client_ed25519", "parsec"


class Outcome(NamedTuple):
    plugin: str
    account: str


@pytest.fixture(scope="module")
def primary(server_version: str) -> Iterator[MariaDb]:
    plugins = ["--plugin-load-add=auth_ed25519", "--plugin-load-add=auth_parsec"]
    with MariaDb(server_version, *plugins[: 1 if server_version.startswith("10.") else 2], tls=True) as running:
        yield running


def who() -> Steps[Rows]:
    return (yield Query("SELECT CURRENT_USER()"))


async def outcome(config: ReplicaConfig) -> Outcome:
    login = await log_in(config, config.endpoints[0])
    try:
        rows = await login.run(who())
        return Outcome(login.plugin, str(rows[0][0]))
    finally:
        login.close()


async def refused(config: ReplicaConfig) -> AuthenticationError:
    with pytest.raises(AuthenticationError) as caught:
        await outcome(config)
    return caught.value


def account(server: MariaDb, plugin: str, password: str) -> None:
    """`p` logs in with this plugin, as the server calls it."""
    server.sql("SET sql_log_bin = 0", "DROP USER IF EXISTS p@'%'")
    server.sql(
        "SET sql_log_bin = 0, character_set_client = utf8mb4, sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')",
        f"CREATE USER p@'%' IDENTIFIED VIA {plugin} USING PASSWORD('{password.replace(chr(39), chr(39) * 2)}')",
    )


def plugins_of(server: MariaDb) -> dict[str, str]:
    """By the server's name, the client's."""
    known = {"mysql_native_password": NATIVE, "ed25519": ED25519, "parsec": PARSEC}
    return {name: known[name] for name in known if name != "parsec" or not server.version.startswith("10.")}


@pytest.mark.edge(80)
@pytest.mark.parametrize("password", PASSWORDS)
async def test_every_plugin_and_password(primary: MariaDb, password: str) -> None:
    for server_side, client_side in plugins_of(primary).items():
        account(primary, server_side, password)
        for tls in ("disabled", "required"):
            config = replica_config(primary, user="p", password=password, tls=tls)
            assert await outcome(config) == Outcome(client_side, "p@%"), server_side


async def test_names_that_are_not_ascii(primary: MariaDb) -> None:
    primary.sql("SET sql_log_bin = 0", "CREATE OR REPLACE USER 'bénützer'@'%' IDENTIFIED BY 'x'")
    assert (await outcome(replica_config(primary, user="bénützer", password="x"))).account == "bénützer@%"


@pytest.mark.edge(80)
async def test_wrong_and_missing_passwords(primary: MariaDb) -> None:
    for server_side in plugins_of(primary):
        account(primary, server_side, "right")
        for password in ("wrong", "right ", ""):
            error = await refused(replica_config(primary, user="p", password=password))
            assert error.code == 1045
            assert "Check user, password" in error.hint
    assert (await refused(replica_config(primary, user="nobody", password="x"))).code == 1045


@pytest.mark.edge(80)
async def test_empty_passwords(primary: MariaDb) -> None:
    for server_side, client_side in some(plugins_of(primary).items()):
        if server_side == "ed25519" and primary.version.startswith("10."):
            continue  # these servers let nobody in: no client can, their own neither
        account(primary, server_side, "")
        assert await outcome(replica_config(primary, user="p", password="")) == Outcome(client_side, "p@%")
        assert (await refused(replica_config(primary, user="p", password="x"))).code == 1045


@pytest.mark.edge(80)
async def test_the_server_may_change_its_mind_more_than_once(primary: MariaDb) -> None:
    chain = "ed25519 USING PASSWORD('one') OR mysql_native_password USING PASSWORD('two')"
    if "parsec" in plugins_of(primary):
        chain = f"parsec USING PASSWORD('three') OR {chain}"
    primary.sql("SET sql_log_bin = 0", f"CREATE OR REPLACE USER chain@'%' IDENTIFIED VIA unix_socket OR {chain}")
    expected = {"one": ED25519, "two": NATIVE} | ({"three": PARSEC} if "parsec" in chain else {})
    for password, plugin in expected.items():
        assert await outcome(replica_config(primary, user="chain", password=password)) == Outcome(plugin, "chain@%")
    assert (await refused(replica_config(primary, user="chain", password="four"))).code in (1045, 1698)


async def test_the_unix_socket_knows_who_we_are(primary: MariaDb) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    primary.sql("SET sql_log_bin = 0", f"CREATE OR REPLACE USER {me}@localhost IDENTIFIED VIA unix_socket")
    config = ReplicaConfig.parse({"unix_socket": str(primary.socket), "user": me})
    assert (await outcome(config)).account == f"{me}@localhost"
    config = ReplicaConfig.parse({"unix_socket": str(primary.socket), "user": "nobody-else"})
    assert (await refused(config)).code in (1045, 1698)


def exchanged(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new)


@pytest.mark.edge(80)
async def test_a_plugin_that_nobody_knows_is_named(primary: MariaDb) -> None:
    account(primary, "ed25519", "x")
    with FaultProxy(primary.host, primary.port) as proxy:
        proxy.mangle = exchanged(b"client_ed25519", b"client_ed99999")
        error = await refused(replica_config(primary, user="p", password="x", port=proxy.port))
    assert "'client_ed99999', which is not supported" in error.message
    assert "ed25519, parsec, mysql_native_password" in error.hint


async def test_the_password_is_not_given_to_who_asks_for_it(primary: MariaDb) -> None:
    account(primary, "ed25519", "marked-password")
    for plugin in (b"mysql_clear_password", b"dialog", b"caching_sha2_password", b"mysql_old_password"):
        said = bytearray()

        def changed(data: bytes, plugin: bytes = plugin, said: bytearray = said) -> bytes:
            said.extend(data)
            if b"client_ed25519" not in data:
                return data
            payload = b"\xfe" + plugin + b"\0" + bytes(20) + b"\0"
            return len(payload).to_bytes(3, "little") + data[3:4] + payload

        with FaultProxy(primary.host, primary.port) as proxy:
            proxy.mangle = changed
            config = replica_config(primary, user="p", password="marked-password", port=proxy.port)
            with pytest.raises(ReplicaError) as caught:
                await outcome(config)
            assert b"client_ed25519" in said
            if plugin != b"caching_sha2_password":  # its first answer is a scramble; the server cannot use it
                assert isinstance(caught.value, AuthenticationError), plugin
                assert plugin.decode() in caught.value.message


async def test_parsec_does_not_calculate_for_ever(make_server: Callable[..., MariaDb]) -> None:
    newest = make_server(list(installations())[-1], "--plugin-load-add=auth_parsec")
    account(newest, "parsec", "x")
    with FaultProxy(newest.host, newest.port) as proxy:
        for change, words in ((b"P\x04", "1024 << 4 rounds"), (b"Q\x00", "another algorithm")):
            proxy.mangle = exchanged(b"\x01P\x00", b"\x01" + change)
            with pytest.raises(ProtocolError, match=words):
                await outcome(replica_config(newest, user="p", password="x", port=proxy.port))
        proxy.mangle = None
        assert (await outcome(replica_config(newest, user="p", password="x", port=proxy.port))).plugin == PARSEC


@pytest.mark.edge(80)
async def test_accounts_that_demand_more_than_a_password(primary: MariaDb) -> None:
    certificates = primary.certificates
    assert certificates is not None
    shown = {"tls_ca": certificates.ca, "tls_cert": certificates.client_cert, "tls_key": certificates.client_key}
    for demand, plain, tls, with_certificate in (
        ("SSL", False, True, True),
        ("X509", False, False, True),
        ("SUBJECT '/CN=client'", False, False, True),
        ("SUBJECT '/CN=other'", False, False, False),
        ("ISSUER '/CN=test ca'", False, False, True),
        ("NONE", True, True, True),
    ):
        primary.sql("SET sql_log_bin = 0", f"CREATE OR REPLACE USER d@'%' IDENTIFIED BY 'x' REQUIRE {demand}")
        ways = ((plain, {}), (tls, {"tls_ca": certificates.ca}), (with_certificate, shown))
        for works, options in ways:
            config = replica_config(primary, user="d", password="x", **options)
            if works:
                assert await outcome(config) == Outcome(NATIVE, "d@%"), demand
            else:
                assert (await refused(config)).code == 1045, demand
