"""The TLS context of a connection: which of the five modes, which certificates. Never a mode that falls back.

Source: measured on 10.5, 10.11 and 11.8. A server without TLS, or one of which a man in the middle says so, leaves
out its capability flag; connection.py refuses it then, where the driver would go on in plain text.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from replica.errors import ConfigError

if TYPE_CHECKING:
    from replica.config import ReplicaConfig


def tls_context(config: ReplicaConfig) -> ssl.SSLContext | None:
    """Return the context for `config.tls_mode`, None for disabled.

    required encrypts and checks nothing; verify-ca checks who signed the certificate; verify-identity also that it
    names the host. Without tls_ca the system's authorities are trusted. verify-password takes any certificate here:
    it is checked when the password was accepted (certificate.py).

    Raises:
        ConfigError: a certificate or key file cannot be read or is none.
    """
    mode = config.tls_mode
    if mode == "disabled":
        return None
    try:
        if mode in ("required", "verify-password"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cafile=config.tls_ca)
            context.check_hostname = mode == "verify-identity"
        # Not what the machine's OpenSSL allows: every server tested (10.5, 10.11, 11.8) speaks 1.2, and older versions
        # of TLS can be broken.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.tls_cert and config.tls_key:
            # Without an answer here, OpenSSL asks a terminal for the passphrase of a protected key, and waits.
            context.load_cert_chain(config.tls_cert, config.tls_key, password=b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(str(path) for path in (config.tls_ca, config.tls_cert, config.tls_key) if path)
        raise ConfigError(f"a TLS file cannot be used ({files}): {error}.", hint="PEM files are expected.") from None
    return context
