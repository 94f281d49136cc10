"""The conversation of a login, replayed as servers held it, and with servers that do not keep to it."""

from __future__ import annotations

import contextlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import AuthenticationError, ProtocolError, ReplicaError
from replica.handshake.login.connection import MAX_ROUNDS, Conversation, authenticate
from replica.handshake.plugins import NONCE_BYTES, PLUGINS, Secret
from tests.unit.handshake import conversations

PRIVATE = Secret(conversations.PASSWORD, private=True)
NONCE = bytes(range(32))


def begun(greeted_with: str = "mysql_native_password", secret: Secret = PRIVATE) -> Conversation:
    conversation = authenticate(greeted_with, bytes(20), secret, lambda _, answer: answer)
    next(conversation)
    return conversation


@pytest.mark.parametrize("recorded", conversations.ALL, ids=lambda one: one.plugin)
def test_what_real_servers_accepted(recorded: conversations.Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    last = recorded.sent[-1]
    monkeypatch.setattr(secrets, "token_bytes", lambda count: last[:count] if last else b"")  # parsec's own part
    first: list[str] = []

    def respond(plugin: str, answer: bytes) -> bytes:
        first.append(plugin)
        return answer

    conversation = authenticate(recorded.greeted_with, recorded.scramble, PRIVATE, respond)
    said, result = conversations.replay(conversation, recorded.received)
    assert tuple(said) == recorded.sent
    assert first == [recorded.greeted_with]
    assert result.plugin.name == recorded.plugin
    assert result.info == recorded.received[-1][7:]


def test_a_default_plugin_that_cannot_begin_is_not_begun_with() -> None:
    names: list[str] = []
    for name in ("mysql_native_password", "caching_sha2_password", "auth_gssapi_client", "mysql_clear_password", ""):
        next(authenticate(name, bytes(20), PRIVATE, lambda plugin, _: names.append(plugin) or b""))  # type: ignore[func-returns-value]
    assert names == ["mysql_native_password", "caching_sha2_password", *["mysql_native_password"] * 3]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "packet of kind 0xff"),
        (b"\x02", "packet of kind 0x02"),
        (b"\xfeclient_ed25519", "does not end"),
        (b"\xfeclient_ed25519\0short", "began with 5 bytes instead of 32"),
        (b"\xfeclient_ed25519\0" + NONCE + b"more", "began with 36 bytes instead of 32"),
        (b"\xfemysql_native_password\0", "began with 0 bytes instead of 20"),
        (b"\x01more", "ends after one answer"),
    ],
)
def test_packets_that_make_no_login(payload: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        begun().send(payload)


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b"\xfe", "mysql_old_password"),
        (b"\xfemysql_old_password\0abcdefgh", "mysql_old_password"),
        (b"\xfeauth_gssapi_client\0", "auth_gssapi_client"),
        (b"\xfe\xff\x1b[31m\0", r"\\x1b"),
        (b"\xfe\0", "''"),
    ],
)
def test_plugins_that_are_not_known_are_named(payload: bytes, name: str) -> None:
    with pytest.raises(AuthenticationError, match=rf"plugin .*{name}.* not supported"):
        begun().send(payload)


def test_a_server_that_never_decides_is_left() -> None:
    conversation = begun()
    switch = b"\xfemysql_native_password\0" + NONCE[:20] + b"\0"
    for _ in range(MAX_ROUNDS):
        assert conversation.send(switch)
    with pytest.raises(ProtocolError, match="did not complete the login"):
        conversation.send(switch)


@pytest.mark.parametrize(
    "payload",
    [b"\xfemysql_clear_password\0", b"\xfedialog\0\x05Password: ", b"\xfecaching_sha2_password\0" + NONCE[:20]],
)
def test_the_password_stays_here_when_the_way_is_not_private(payload: bytes) -> None:
    conversation = begun(secret=Secret(conversations.PASSWORD, private=False))

    def go_on() -> bytes | None:
        conversation.send(payload)
        return conversation.send(b"\x01\x04")

    with pytest.raises(AuthenticationError, match=r"would send the password|wants the password"):
        go_on()


@given(st.lists(st.binary(max_size=60), max_size=5), st.sampled_from(sorted(PLUGINS)))
def test_whatever_a_server_says_it_is_a_login_or_one_of_our_errors(payloads: list[bytes], plugin: str) -> None:
    conversation = begun(secret=Secret(conversations.PASSWORD, private=False))
    said: list[bytes | None] = []
    with contextlib.suppress(ReplicaError, StopIteration):
        for payload in (b"\xfe" + plugin.encode() + b"\0" + NONCE, *payloads):
            said.append(conversation.send(payload))  # noqa: PERF401  (until it ends)
    assert not any(one and conversations.PASSWORD in one for one in said)


def test_nothing_of_a_secret_is_shown() -> None:
    assert "ssword" not in repr(PRIVATE)
    assert len(NONCE) == NONCE_BYTES
