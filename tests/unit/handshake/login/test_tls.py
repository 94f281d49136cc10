from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.handshake.login.connection import tls_context
from replica.options.config import ReplicaConfig
from tests.fixtures.network.certificates import Certificates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.in_folder(tmp_path_factory.mktemp("tls") / "certificates")


def context(**options: object) -> ssl.SSLContext | None:
    return tls_context(ReplicaConfig.parse({"user": "repl", **options}))


def test_disabled_has_no_context() -> None:
    assert context() is None


@pytest.mark.parametrize(
    ("mode", "verify", "hostname"),
    [
        ("required", ssl.CERT_NONE, False),
        ("verify-password", ssl.CERT_NONE, False),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("verify-identity", ssl.CERT_REQUIRED, True),
    ],
)
def test_each_mode_checks_what_its_name_says(mode: str, verify: ssl.VerifyMode, hostname: bool) -> None:  # noqa: FBT001
    made = context(tls=mode)
    assert made is not None
    assert (made.verify_mode, made.check_hostname) == (verify, hostname)
    assert made.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_only_the_given_authority_is_trusted(certificates: Certificates) -> None:
    made = context(tls_ca=certificates.ca, tls_cert=certificates.client_cert, tls_key=certificates.client_key)
    assert made is not None
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert len(made.get_ca_certs()) == 1


def test_files_that_are_missing_or_no_certificates_are_named(tmp_path: Path, certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        context(tls_ca=tmp_path / "missing.pem")
    (tmp_path / "text.pem").write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"text\.pem"):
        context(tls_ca=tmp_path / "text.pem")
    protected = tmp_path / "protected.key"
    sealing = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", certificates.client_key, "-out", protected]
    subprocess.run(sealing, check=True, capture_output=True)
    with pytest.raises(ConfigError, match=r"protected\.key"):
        context(tls_cert=certificates.client_cert, tls_key=protected)
    with pytest.raises(ConfigError, match="TLS file"):
        context(tls_cert=certificates.client_cert, tls_key=certificates.server_key)
