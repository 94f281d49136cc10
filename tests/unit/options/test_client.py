"""What option files mean for a replica, alone and beside what is given elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from replica.daemon.config import DaemonConfig
from replica.errors import ConfigError
from replica.options.config import ReplicaConfig
from replica.options.file import home_file, option_file_password
from tests.fixtures.installation import installations


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.cnf"


def config(file: Path, text: str, **given: object) -> ReplicaConfig:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return ReplicaConfig.parse({"defaults_file": str(file), **given})


def test_what_the_client_knows(file: Path) -> None:
    made = config(
        file,
        "[client]\nuser=repl\npassword='p#1'\nhost=db1\nport=3307\nssl_ca=/ca\nssl-cert=/c\nloose-ssl-key=/k\n"
        "compress\nconnect-timeout=7\ndefault-character-set=latin1\n[mysqld]\nuser=mysql\n[mysql]\nuser=no\n",
    )
    assert (made.user, made.host, made.port, made.read_password()) == ("repl", ("db1",), 3307, "p#1")
    assert (made.tls_mode, made.tls_ca, made.tls_cert, made.tls_key) == (
        "verify-identity",
        Path("/ca"),
        Path("/c"),
        Path("/k"),
    )
    assert made.compress
    assert made.connect_timeout_s == 7


def test_our_own_group_takes_every_option_and_no_other(file: Path) -> None:
    made = config(file, "[mariadb-replica]\nuser=u\nsemi-sync\nrelay_max_bytes=1g\ntls=verify-password\n")
    assert (made.semi_sync, made.relay_max_bytes, made.tls) == (True, 1 << 30, "verify-password")
    with pytest.raises(ConfigError, match=r"my\.cnf:3: unknown option 'relay-max-byte'"):
        config(file, "[mariadb-replica]\nuser=u\nrelay-max-byte=1g\n")
    with pytest.raises(ConfigError, match=r"my\.cnf:3: unknown option 'defaults-file'"):
        config(file, "[mariadb-replica]\nuser=u\ndefaults-file=/other\n")
    file.write_text("[mariadb-replica]\nuser=u\nretain=2h\n")
    assert DaemonConfig.parse({"defaults_file": file}).retain_s == 7200


def test_the_last_of_several_counts_whatever_its_group(file: Path) -> None:
    text = "[mariadb-replica]\nuser=a\n[client]\nuser=b\n[client-server]\npassword=1\n[client]\npassword=2\n"
    made = config(file, text)
    assert (made.user, made.read_password()) == ("b", "2")


def test_what_is_given_elsewhere_wins(file: Path) -> None:
    text = "[client]\nuser=file\npassword=file\nhost=db1\nport=3307\n"
    made = config(file, text, user="given", port=3308)
    assert (made.user, made.port, made.host, made.read_password()) == ("given", 3308, ("db1",), "file")
    assert config(file, text, password="given").read_password() == "given"
    secret = file.with_name("secret")
    secret.write_text("from its file\n")
    assert config(file, text, password_file=str(secret)).read_password() == "from its file"
    assert config(file, f"{text}[mariadb-replica]\npassword-file={secret}\n").read_password() == "from its file"
    assert config(file, f"{text}[mariadb-replica]\npassword-file={secret}\n", password="x").read_password() == "x"


@pytest.mark.parametrize(
    ("lines", "given", "host", "unix_socket"),
    [
        ("socket=/s", {}, "127.0.0.1", "/s"),
        ("host=localhost\nport=1\nsocket=/s", {}, "127.0.0.1", "/s"),
        ("host=db1\nsocket=/s", {}, "db1", None),
        ("host=db1\nsocket=/s\nprotocol=socket", {}, "127.0.0.1", "/s"),
        ("host=localhost\nsocket=/s\nprotocol=TCP", {}, "localhost", None),
        ("socket=/s", {"host": "db2"}, "db2", None),
        ("socket=/s", {"port": 3307}, "127.0.0.1", None),
        ("host=db1\nport=7\nsocket=/s", {"unix_socket": "/t"}, "127.0.0.1", "/t"),
    ],
)
def test_a_host_or_a_socket(
    file: Path, lines: str, given: dict[str, object], host: str, unix_socket: str | None
) -> None:
    made = config(file, f"[client]\nuser=u\n{lines}\n", **given)
    assert (made.host, made.unix_socket) == ((host,), unix_socket)


@pytest.mark.parametrize(
    ("lines", "given", "mode"),
    [
        ("", {}, "disabled"),
        ("ssl", {}, "required"),
        ("enable-ssl", {}, "required"),
        ("ssl=1", {}, "required"),
        ("ssl-cert=/c\nssl-key=/k", {}, "required"),
        ("ssl-ca=/a", {}, "verify-identity"),
        ("ssl-ca=/a\nssl", {}, "verify-identity"),
        ("ssl-verify-server-cert", {}, "verify-identity"),
        ("ssl-ca=/a\nskip-ssl-verify-server-cert", {}, "verify-ca"),
        ("ssl-ca=/a\nssl_verify_server_cert=OFF", {}, "verify-ca"),
        ("disable-ssl-verify-server-cert", {}, "required"),
        ("ssl-ca=/a\nskip-ssl", {}, "disabled"),
        ("skip-ssl\nssl-ca=/a", {}, "verify-identity"),
        ("ssl=0\nssl-verify-server-cert", {}, "disabled"),
        ("skip-ssl\n[mariadb-replica]\ntls-ca=/a", {}, "verify-identity"),
        ("skip-ssl\n[mariadb-replica]\ntls=verify-password", {}, "verify-password"),
        ("ssl-ca=/a\n[mariadb-replica]\ntls=disabled", {}, "disabled"),
        ("skip-ssl", {"tls_ca": "/a"}, "verify-identity"),
        ("skip-ssl", {"tls": "required"}, "required"),
        ("ssl-ca=/a", {"tls": "disabled"}, "disabled"),
        ("ssl-ca=/a", {"tls": "verify-password"}, "verify-password"),
        ("ssl-ca=/a", {"tls": "verify-ca"}, "verify-ca"),
        ("ssl-mode=REQUIRED", {}, "required"),
        ("ssl_mode=disabled", {}, "disabled"),
        ("ssl-mode=VERIFY_CA", {}, "verify-ca"),
        ("loose-ssl-mode=VERIFY_IDENTITY", {}, "verify-identity"),
        ("ssl-mode=REQUIRED\nssl-ca=/a", {}, "verify-ca"),
        ("ssl-ca=/a\nssl-mode=DISABLED", {}, "disabled"),
        ("ssl-mode=REQUIRED\nssl-verify-server-cert", {}, "verify-identity"),
        ("ssl-mode=REQUIRED\nssl-verify-server-cert=0", {}, "required"),
        ("ssl-mode=REQUIRED", {"tls": "verify-password"}, "verify-password"),
        ("ssl\ntls-version=TLSv1.2,TLSv1.3", {}, "required"),
        ("ssl\ntls_version=TLSv1.1, TLSv1.2, TLSv1.3", {}, "required"),
    ],
)
def test_how_safe_the_connection_is(file: Path, lines: str, given: dict[str, object], mode: str) -> None:
    assert config(file, f"[client]\nuser=u\n{lines}\n", **given).tls_mode == mode


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ssl-capath=/certs", "ssl-capath cannot be honoured"),
        ("ssl-fp=AB:CD", "ssl-fp cannot be honoured"),
        ("ssl-crl=/crl", "ssl-crl cannot be honoured"),
        ("ssl-cipher=ECDHE-RSA-AES256-GCM-SHA384", "ssl-cipher cannot be honoured"),
        ("ssl=perhaps", "ssl is neither on nor off"),
        ("ssl-mode=PREFERRED", "ssl-mode is not one of DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY"),
        ("ssl-mode", "ssl-mode is not one of"),
        ("ssl-mode=REQUIRED\nskip-ssl", "ssl-mode=REQUIRED contradicts skip-ssl"),
        ("ssl-mode=DISABLED\nssl-verify-server-cert", "ssl-mode=DISABLED contradicts ssl-verify"),
        ("tls-version=TLSv1.3", "tls-version cannot be honoured"),
        ("tls-version=TLSv1.1", "tls-version cannot be honoured"),
        ("tls-version", "tls-version cannot be honoured"),
        ("tls=required", "'tls' is not a known TLS option"),
        ("ssl-verify", "'ssl-verify' is not a known TLS option"),
        ("skip-ssl=1", "'skip-ssl' is not a known TLS option"),
        ("SSL-MODE=REQUIRED", "'SSL-MODE' is not a known TLS option"),
        ("loose_ssl_enforce", "'loose_ssl_enforce' is not a known TLS option"),
        ("disable-loose-tls_passphrase=x", "is not a known TLS option"),
        ("tls-sni-servername=db1", "is not a known TLS option"),
        ("password", "no terminal to ask for it"),
        ("port=abc", r"option port \(.*my\.cnf:3\)"),
    ],
)
def test_lines_that_are_refused(file: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(file, f"[client]\nuser=u\n{line}\n")


def test_the_password_is_read_at_each_login_and_kept_nowhere(file: Path) -> None:
    made = config(file, "[client]\nuser=u\npassword=first\n")
    assert "first" not in repr(made)
    assert made.password is None
    file.write_text("[client]\nuser=u\npassword=second\n")
    assert made.read_password() == "second"
    file.write_text("[client]\nuser=u\npassword=\n")
    assert made.read_password() == ""
    file.write_text("[client]\nuser=u\n")
    assert option_file_password(file) is None
    assert made.read_password() == ""


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.cnf cannot be read"):
        ReplicaConfig.parse({"user": "u", "defaults_file": tmp_path / "gone.cnf"})


def test_the_users_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home_file() is None
    (tmp_path / ".my.cnf").write_text("[client]\nuser=at-home\n")
    assert home_file() == tmp_path / ".my.cnf"
    assert ReplicaConfig.parse({"defaultsFile": "~/.my.cnf"}).user == "at-home"


@pytest.mark.server
def test_no_word_of_tls_that_the_real_client_knows_is_passed_over(server_version: str, file: Path) -> None:
    client = installations()[server_version].binary("mariadb")
    shown = subprocess.run([client, "--no-defaults", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"--((?:ssl|tls)[a-z-]*)", shown))
    assert {"ssl", "ssl-ca", "ssl-cipher", "tls-version", "ssl-verify-server-cert"} <= known
    for word in known:
        file.write_text(f"[client]\nuser=u\n{word}=anything\n")
        try:
            made = ReplicaConfig.parse({"user": "u", "defaults_file": str(file)})
        except ConfigError:
            continue
        assert Path("anything") in (made.tls_ca, made.tls_cert), word
