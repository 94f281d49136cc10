"""Translation of the driver's errors to ours. The driver raises OperationalError(code, text) for everything; our types
show whether a retry may help.

Source: the numbers are those of the server's sql/share/errmsg-utf8.txt (1000 to 1999, 4000 and above), of a client's
errmsg.h (2000 to 2999) and of MySQL (3159). The numbers that end a login are measured on 10.5, 10.11 and 11.8.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, DisconnectedError, ReplicaError, ServerError
from replica.handshake.login.driver import DriverError, NotConnectedError
from replica.handshake.plugins import advice

if TYPE_CHECKING:
    from replica.options.config import Endpoint

AUTHENTICATION_CODES = frozenset({1044, 1045, 1130, 1142, 1227, 1251, 1275, 1524, 1698, 1820, 1862, 2059, 3159, 4151})
"""Wrong account, password, plugin, host or privilege; TLS required; expired or locked. A retry does not help."""
CONNECTION_CODES = frozenset(
    {1040, 1053, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1927, 2003, 2006, 2013, 2014}
)
"""Too many connections, shutting down, killed, lost, init_connect failed. A retry may succeed."""
_CANNOT_CONNECT = 2003
"""Driver's error for a failed connection. Its text names a MySQL server and no port, so the message shows the cause
instead.
"""
_OF_DRIVER = range(2000, 3000)
"""Errors that the driver detects itself. Texts of a server are shown unchanged."""
_NO_WAY_IN: Final[tuple[tuple[type[OSError], str, str], ...]] = (
    (
        ConnectionRefusedError,
        "the connection is refused",
        "Nothing listens there. Check whether the server runs, its port, and whether its bind_address lets others in.",
    ),
    (
        socket.gaierror,
        "this machine cannot resolve the name",
        "Check the host's name, and this machine's DNS.",
    ),
    (
        TimeoutError,
        "nothing answers",
        "Check the host's name and port, whether that machine is up, and firewalls.",
    ),
)
"""Errors of the system while connecting: their type, their meaning in words, and a hint."""
_HOURLY: Final = ("max_queries_per_hour", "max_connections_per_hour", "max_updates_per_hour")
"""Hourly limits of an account, as error 1226 names them."""
TLS_REFUSALS = (
    *("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "LEGACY"),
    *("NO_CIPHERS", "NO_PROTOCOLS", "NO_SHARED", "PROTOCOL_VERSION", "TOO_SMALL", "TOO_WEAK", "UNSUPPORTED_PROTOCOL"),
)
"""Parts of OpenSSL's reasons for incompatible certificates, versions and ciphers. A retry does not help."""


def translated(error: BaseException, endpoint: Endpoint) -> ReplicaError:
    """Return the error to raise for an error of the driver or the socket while talking to `endpoint`."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError) and _is_refusal(cause):
        return _tls_refused(cause, endpoint)
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]) if error.args else str(error)
    sqlstate = getattr(error, "sqlstate", None) or ""
    lost = code in CONNECTION_CODES or isinstance(error, NotConnectedError) or isinstance(cause, OSError)
    if lost or not isinstance(error, DriverError):
        if cause is not error:
            text = _reason(cause) if code == _CANNOT_CONNECT else f"{text}: {cause}"
        elif code in _OF_DRIVER:
            text = text.replace("MySQL server", "the server")
        return DisconnectedError(f"no connection to {endpoint}: {text}.", hint=_way_in(code, cause, text))
    if code in AUTHENTICATION_CODES:
        return AuthenticationError(f"{endpoint} refused: {text}.", code=code, sqlstate=sqlstate, hint=_advice(code))
    return ServerError(f"{endpoint} answered with error {code}: {text}.", code=code, sqlstate=sqlstate)


def _reason(cause: BaseException) -> str:
    """Return the reason of a failed connection: in words if it is known, and always in the system's words."""
    system = str(cause) or type(cause).__name__
    text, _ = _known(cause)
    return f"{text} ({system})" if text else system


def _known(cause: BaseException) -> tuple[str, str]:
    """Return words and hint for a cause; both are empty if the cause is unknown."""
    return next(((text, hint) for kind, text, hint in _NO_WAY_IN if isinstance(cause, kind)), ("", ""))


def _way_in(code: int, cause: BaseException, text: str) -> str:
    _, hint = _known(cause)
    if hint:
        return hint
    match code:
        case 1040:
            return "All connections of the server are in use. Raise its max_connections, or end some of them."
        case 1184:
            return (
                "The server runs its init_connect in each session of an account without CONNECTION ADMIN. It failed, "
                "or the server lost the connection. Check SELECT @@GLOBAL.init_connect, and its error log."
            )
        case 1203 | 1226:
            return _limit_of_account(text)
        case 1129:
            return "The server blocks this host after too many errors: run FLUSH HOSTS there (max_connect_errors)."
        case _:
            return "Check the host's name and port, the server's bind_address, and firewalls."


def _limit_of_account(text: str) -> str:
    """Return the hint for a limit of the account, which the server names in its error."""
    name = next((name for name in _HOURLY if name in text.lower()), "")
    if name:
        limit = name.upper()
        return (
            f"The account has an hourly limit ({limit}), and a replica queries all the time. Run ALTER USER … "
            f"WITH {limit} 0."
        )
    return (
        "The account has reached its limit of connections. Raise its MAX_USER_CONNECTIONS, or "
        "max_user_connections of the server. A replica has one for the stream, one for its monitor, and more "
        "for queries and snapshots."
    )


def _advice(code: int) -> str:
    match code:
        case 1045:
            return "Check user, password, and whether the account is allowed from this host or requires TLS."
        case 1698:
            return "This account logs in through the server's unix socket only: use another account, or unix_socket."
        case 1524 | 1251:
            return advice()
        case 3159 | 4151:
            return "The server accepts no connection without TLS (require_secure_transport). Set tls."
        case 1130:
            return "Create the account for this host: CREATE USER 'name'@'%'."
        case _:
            return ""


def _is_refusal(error: ssl.SSLError) -> bool:
    """Return True if one side refuses the other. Any other error, such as a wrong MAC, is damage on the way."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return any(text in (error.reason or "") for text in TLS_REFUSALS)


def _tls_refused(error: ssl.SSLError, endpoint: Endpoint) -> AuthenticationError:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "Set tls_ca to the authority that signed it, or connect to the host name that it was made for."
        message = f"the certificate of {endpoint} is not trusted: {error.verify_message}."
        return AuthenticationError(message, hint=hint)
    return AuthenticationError(
        f"TLS with {endpoint} failed: {error}.", hint="Check tls_cert, and the server's TLS versions."
    )
