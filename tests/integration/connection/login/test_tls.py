"""TLS on, off, refused and verified, against servers with and without a certificate, and somebody in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import AuthenticationError, ReplicaError
from replica.handshake.login.login import log_in
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.installation import installations
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.network.man_in_the_middle import ManInTheMiddle
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.network.certificates import Certificates

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def tls_server(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, tls=True) as running:
        yield running


@pytest.fixture
def certificates(tls_server: MariaDb) -> Certificates:
    assert tls_server.certificates is not None
    return tls_server.certificates


def asked(server: MariaDb, tmp_path: Path, **options: object) -> GtidPosition:
    with EmbeddedReplica(replica_config(server, **options), tmp_path) as replica:
        return replica.server_position()


def refused(server: MariaDb, tmp_path: Path, **options: object) -> str:
    with pytest.raises(ReplicaError) as caught:
        asked(server, tmp_path, **options)
    assert isinstance(caught.value, AuthenticationError)
    return caught.value.message


def test_a_stream_inside_tls(tls_server: MariaDb, certificates: Certificates, tmp_path: Path) -> None:
    user, password = tls_server.add_user("encrypted", require="REQUIRE SSL")
    config = replica_config(tls_server, user=user, password=password, tls_ca=certificates.ca, semi_sync=True)
    before = len(server_gtids(tls_server))
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition.parse(tls_server.gtid_binlog_pos()))
        tls_server.sql("CREATE OR REPLACE DATABASE tls", "CREATE TABLE tls.t(b LONGBLOB)")
        tls_server.sql("INSERT INTO tls.t VALUES (REPEAT('x', 3000000))")
        assert replica.wait_for(GtidPosition.parse(tls_server.gtid_binlog_pos()), 60)
    assert relay_gtids(tls_server, tmp_path) == server_gtids(tls_server)[before:]


@pytest.mark.edge(80)
def test_an_account_that_requires_tls_is_refused_without(tls_server: MariaDb, tmp_path: Path) -> None:
    user, password = tls_server.add_user("encrypted", require="REQUIRE SSL")
    assert "Access denied" in refused(tls_server, tmp_path, user=user, password=password)
    assert asked(tls_server, tmp_path, user=user, password=password, tls="required") is not None


def test_a_stranger_authority_is_refused(tls_server: MariaDb, certificates: Certificates, tmp_path: Path) -> None:
    for mode in ("verify-ca", "verify-identity"):
        message = refused(tls_server, tmp_path, tls=mode, tls_ca=certificates.stranger_ca)
        assert "certificate" in message
    assert "certificate" in refused(tls_server, tmp_path, tls="verify-identity"), "nor is it in the system's store"


def test_a_client_certificate_is_shown(tls_server: MariaDb, certificates: Certificates, tmp_path: Path) -> None:
    user, password = tls_server.add_user("certified", require="REQUIRE X509")
    plain = {"user": user, "password": password, "tls_ca": certificates.ca}
    refused(tls_server, tmp_path, **plain)
    with_certificate = plain | {"tls_cert": certificates.client_cert, "tls_key": certificates.client_key}
    asked(tls_server, tmp_path, **with_certificate)


def test_the_name_is_checked_only_by_verify_identity(
    tls_server: MariaDb, certificates: Certificates, tmp_path: Path
) -> None:
    # Linux answers on all of 127/8, the certificate names 127.0.0.1 only; the proxy makes it another host.
    with FaultProxy(tls_server.host, tls_server.port, listen="127.0.0.2") as proxy:
        there = {"host": "127.0.0.2", "port": proxy.port, "tls_ca": certificates.ca}
        assert "127.0.0.2" in refused(tls_server, tmp_path, **there)
        asked(tls_server, tmp_path, **there, tls="verify-ca")


@pytest.mark.parametrize("mode", ["required", "verify-ca", "verify-identity"])
@pytest.mark.edge(80)
def test_a_server_without_tls_is_refused_before_the_password_is_sent(
    server: MariaDb, mode: str, tmp_path: Path
) -> None:
    logins = server.sql("SHOW STATUS LIKE 'Access_denied_errors'")
    assert "TLS" in refused(server, tmp_path, tls=mode)
    assert server.sql("SHOW STATUS LIKE 'Access_denied_errors'") == logins
    assert asked(server, tmp_path) is not None


def vouches(server: MariaDb) -> bool:
    """Whether this version says in its last OK what certificate it has (11.4)."""
    return tuple(int(part) for part in server.version.split(".")) >= (11, 4)


@pytest.mark.parametrize("made_by", ["administrator", "server"])
def test_a_certificate_verified_through_the_password(
    make_server: Callable[..., MariaDb], made_by: str, tmp_path: Path
) -> None:
    options = ["--plugin-load-add=auth_ed25519", "--plugin-load-add=auth_parsec"]
    if made_by == "server":
        options.append("--ssl")  # undoes the fixture's --skip-ssl: the server makes a certificate of its own
    newest = make_server(list(installations())[-1], *options, tls=made_by == "administrator")
    for plugin in ("mysql_native_password", "ed25519", "parsec"):
        newest.sql(
            "SET sql_log_bin = 0",
            f"CREATE OR REPLACE USER p@'%' IDENTIFIED VIA {plugin} USING PASSWORD('pässword')",
            "GRANT REPLICATION SLAVE, SELECT ON *.* TO p@'%'",
        )
        account = {"user": "p", "password": "pässword", "tls": "verify-password"}
        assert asked(newest, tmp_path, **account) is not None
        assert asked(newest, tmp_path, **account, compress=True) is not None
        newest.sql("SET sql_log_bin = 0", f"ALTER USER p@'%' IDENTIFIED VIA {plugin} USING PASSWORD('')")
        assert "empty password" in refused(newest, tmp_path, **(account | {"password": ""}))


def test_a_server_that_cannot_vouch_for_its_certificate_is_refused(tls_server: MariaDb, tmp_path: Path) -> None:
    if vouches(tls_server):
        assert asked(tls_server, tmp_path, tls="verify-password") is not None
    else:
        assert "does not vouch" in refused(tls_server, tmp_path, tls="verify-password")


def test_somebody_in_between_is_found_by_every_mode_that_verifies(
    tls_server: MariaDb, certificates: Certificates, tmp_path: Path
) -> None:
    with ManInTheMiddle(tls_server.host, tls_server.port, certificates) as man:
        for options in ({"tls_ca": certificates.ca}, {"tls": "verify-ca", "tls_ca": certificates.ca}):
            assert "certificate" in refused(tls_server, tmp_path, port=man.port, **options)
        assert man.heard == b"", "not even the user's name was told"
        words = "the connection is intercepted" if vouches(tls_server) else "does not vouch"
        assert words in refused(tls_server, tmp_path, port=man.port, tls="verify-password")
        assert b"SELECT" not in man.heard
        assert b"SET" not in man.heard, "he heard a login and nothing that came after it"
        # And this is what `required` means: encrypted, to anybody.
        assert asked(tls_server, tmp_path, port=man.port, tls="required") is not None


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog", "caching_sha2_password"])
def test_somebody_in_between_who_asks_for_the_password_gets_none(
    tls_server: MariaDb, certificates: Certificates, plugin: str, tmp_path: Path
) -> None:
    user, password = tls_server.add_user("asked", "marked-password")
    account = {"user": user, "password": password, "connect_timeout_s": 60, "connect_retry_s": 0.1}
    with ManInTheMiddle(tls_server.host, tls_server.port, certificates, asks_for=plugin) as man:
        for tls in ("disabled", "verify-password", "verify-ca", "verify-identity"):
            with (
                EmbeddedReplica(replica_config(tls_server, port=man.port, tls=tls, **account), tmp_path) as replica,
                pytest.raises(ReplicaError),
            ):
                replica.server_position()
        assert b"asked" in man.heard
        assert password.encode() not in man.heard


async def test_the_login_knows_how_it_is_protected(tls_server: MariaDb, certificates: Certificates) -> None:
    for options, protected in (({}, False), ({"tls_ca": certificates.ca}, True)):
        config = replica_config(tls_server, **options)
        login = await log_in(config, config.endpoints[0])
        assert (login.tls.split(" ")[0] in ("TLSv1.2", "TLSv1.3")) == protected
        assert ("_" in login.tls) == protected, "the cipher"
        login.close()
