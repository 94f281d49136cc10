"""Which of the driver's errors mean what."""

from __future__ import annotations

import socket
import ssl

import pymysql.err
import pytest

from replica.errors import AuthenticationError, DisconnectedError, ReplicaError, ServerError
from replica.handshake.login.refusals import translated as translated_for
from replica.options.config import Endpoint

ENDPOINT = Endpoint("db1", 3306)


def translated(error: BaseException) -> ReplicaError:
    return translated_for(error, ENDPOINT)


@pytest.mark.parametrize("code", [1045, 1227, 1130, 1698, 2059])
def test_refused_accounts_are_permanent(code: int) -> None:
    error = translated(pymysql.err.OperationalError(code, "Access denied"))
    assert isinstance(error, AuthenticationError)
    assert error.code == code
    assert "db1:3306" in str(error)


@pytest.mark.parametrize("code", [1040, 1053, 2003, 2013])
def test_busy_and_lost_servers_may_be_tried_again(code: int) -> None:
    assert isinstance(translated(pymysql.err.OperationalError(code, "gone")), DisconnectedError)


def test_a_server_that_takes_no_more_connections_is_not_looked_for_behind_a_firewall() -> None:
    for code, words in ((1040, "max_connections"), (1226, "MAX_USER_CONNECTIONS"), (1129, "FLUSH HOSTS")):
        found = translated(pymysql.err.OperationalError(code, "refused"))
        assert words in found.hint
        assert "firewall" not in found.hint


@pytest.mark.parametrize(
    ("cause", "said", "advice"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "is refused ([Errno 111]", "Nothing listens there"),
        (socket.gaierror(-2, "Name or service not known"), "cannot resolve the name ([Errno -2]", "DNS"),
        (TimeoutError(110, "Connect call failed"), "nothing answers ([Errno 110]", "firewalls"),
        (OSError(113, "No route to host"), "[Errno 113] No route to host.", "firewalls"),
    ],
)
def test_why_there_is_no_connection_is_said_without_the_drivers_words(cause: OSError, said: str, advice: str) -> None:
    wrapped = pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db1'")
    wrapped.__cause__ = cause
    error = translated(wrapped)
    assert str(error).startswith("no connection to db1:3306: ")
    assert said in str(error)
    assert advice in error.hint
    assert "MySQL" not in str(error)


def test_a_lost_connection_is_one_to_the_server() -> None:
    lost = pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
    assert "Lost connection to the server during query" in str(translated(lost))


def test_socket_errors_may_be_tried_again() -> None:
    assert isinstance(translated(ConnectionResetError(104, "reset by peer")), DisconnectedError)


def test_other_errors_keep_the_servers_code() -> None:
    error = translated(pymysql.err.ProgrammingError(1064, "syntax"))
    assert type(error) is ServerError
    assert error.code == 1064


def tls_error(reason: str) -> pymysql.err.OperationalError:
    cause = ssl.SSLError(1, f"[SSL: {reason}] in words")
    cause.reason = reason
    wrapped = pymysql.err.OperationalError(2003, "Can't connect")
    wrapped.__cause__ = cause
    return wrapped


@pytest.mark.parametrize(
    "reason",
    [
        *("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        *("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "DH_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"),
    ],
)
def test_two_sides_whose_tls_does_not_fit_will_not_fit_later(reason: str) -> None:
    error = translated(tls_error(reason))
    assert isinstance(error, AuthenticationError)
    assert reason in error.message


@pytest.mark.parametrize(
    "reason",
    [
        "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        "SSLV3_ALERT_BAD_RECORD_MAC",
        "TLSV1_ALERT_DECODE_ERROR",
        "RECORD_TOO_LONG",
    ],
)
def test_damage_inside_tls_is_a_lost_connection(reason: str) -> None:
    assert isinstance(translated(tls_error(reason)), DisconnectedError)


def test_an_untrusted_certificate_is_permanent() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    wrapped = pymysql.err.OperationalError(2003, "Can't connect")
    wrapped.__cause__ = cause
    error = translated(wrapped)
    assert isinstance(error, AuthenticationError)
    assert "self-signed" in error.message
