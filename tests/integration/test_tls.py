"""TLS on, off, refused and verified, against servers with and without a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.embedded import EmbeddedReplica
from replica.errors import AuthenticationError, ReplicaError
from replica.protocol.gtid import GtidPosition
from tests.fixtures.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.certificates import Certificates

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
        assert replica.wait_for(GtidPosition.parse(tls_server.gtid_binlog_pos()), 20)
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
