"""What the server says about its certificate, as a real one said it, and changed in every part."""

from __future__ import annotations

import pytest

from replica.errors import AuthenticationError
from replica.handshake.login import connection as certificate
from replica.handshake.login.connection import Authenticated, authenticate
from replica.handshake.plugins import Secret
from tests.unit.handshake import conversations

DER = b"the certificate"


def logged_in(recorded: conversations.Recorded, password: bytes = conversations.PASSWORD) -> Authenticated:
    """What the recorded conversation ends with, for this password."""
    secret = Secret(password, private=True)
    conversation = authenticate(recorded.greeted_with, recorded.scramble, secret, lambda _, answer: answer)
    return conversations.replay(conversation, recorded.received)[1]


@pytest.fixture(autouse=True)
def fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded certificate is known by its fingerprint only: DER stands for it."""
    real = certificate.sha256

    class Known:
        def digest(self) -> bytes:
            return conversations.CERTIFICATE_SHA256

    monkeypatch.setattr(certificate, "sha256", lambda data: Known() if data == DER else real(data))


@pytest.mark.parametrize("recorded", conversations.MARIADB, ids=lambda one: one.plugin)
def test_a_real_server_vouches_for_its_certificate(recorded: conversations.Recorded) -> None:
    certificate.check_certificate(logged_in(recorded), recorded.scramble, DER)


@pytest.mark.parametrize("recorded", conversations.MARIADB, ids=lambda one: one.plugin)
def test_and_for_no_other_nor_with_another_password(recorded: conversations.Recorded) -> None:
    for done, scramble, der in (
        (logged_in(recorded), recorded.scramble, b"another certificate"),
        (logged_in(recorded), recorded.scramble[::-1], DER),
        (logged_in(recorded, b"another"), recorded.scramble, DER),
    ):
        with pytest.raises(AuthenticationError, match="the connection is intercepted"):
            certificate.check_certificate(done, scramble, der)


@pytest.mark.parametrize("info", [b"", b"\x41", b"\x01" + b"A" * 64, b"\x41\x02" + b"A" * 64, b"\x41\x01" + b"A" * 65])
def test_a_server_that_says_nothing_of_the_kind(info: bytes) -> None:
    done = Authenticated(logged_in(conversations.NATIVE).plugin, info)
    with pytest.raises(AuthenticationError, match="does not vouch"):
        certificate.check_certificate(done, conversations.NATIVE.scramble, DER)


@pytest.mark.parametrize(
    ("recorded", "password"),
    [
        (conversations.CACHING_SHA2, conversations.PASSWORD),
        (conversations.NATIVE, b""),
        (conversations.ED25519, b""),
        (conversations.PARSEC, b""),
    ],
)
def test_logins_that_prove_nothing(recorded: conversations.Recorded, password: bytes) -> None:
    with pytest.raises(AuthenticationError, match="proves nothing about the server"):
        certificate.check_certificate(logged_in(recorded, password), recorded.scramble, DER)
