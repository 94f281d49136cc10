"""Each plugin by itself: what is not seen in the recorded conversations."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from replica.errors import AuthenticationError, ConfigError, ProtocolError
from replica.handshake.plugins import (
    PLUGINS,
    CachingSha2,
    ClearPassword,
    Dialog,
    Ed25519,
    NativePassword,
    Parsec,
    Secret,
    advice,
    plugin_named,
)

if TYPE_CHECKING:
    from pathlib import Path

NONCE = bytes(range(32))
PASSWORD = "pässword".encode()


def secret(password: bytes = PASSWORD, *, private: bool = False, public_key: Path | None = None) -> Secret:
    return Secret(password, private=private, public_key=public_key)


def test_the_table_knows_each_by_its_name() -> None:
    assert {name: type(plugin_named(name, secret())) for name in PLUGINS} == PLUGINS
    with pytest.raises(AuthenticationError) as caught:
        plugin_named("sha256_password", secret())
    assert caught.value.hint == advice()


def test_native_sends_nothing_for_an_empty_password_and_takes_a_final_zero() -> None:
    assert NativePassword(secret(b"")).begin(NONCE[:20]) == b""
    plugin = NativePassword(secret())
    assert plugin.begin(NONCE[:20] + b"\0") == plugin.begin(NONCE[:20])


@pytest.mark.parametrize("password", [b"", b"x", PASSWORD, bytes(range(1, 256)) * 3])
def test_ed25519_makes_signatures_that_libsodium_accepts(password: bytes) -> None:
    plugin = Ed25519(secret(password))
    key = VerifyKey(plugin._public_key())
    signature = plugin.begin(NONCE)
    assert key.verify(NONCE, signature) == NONCE
    with pytest.raises(BadSignatureError):
        key.verify(NONCE[::-1], signature)


def test_parsec_signs_both_nonces() -> None:
    plugin = Parsec(secret())
    assert plugin.begin(NONCE) == b""
    head = b"P\x01" + bytes(18)
    answer = plugin.more(head)
    assert answer is not None
    stored = plugin.stored()
    assert stored is not None
    assert stored[:20] == head
    VerifyKey(stored[20:]).verify(NONCE + answer[:32], answer[32:])
    with pytest.raises(ProtocolError, match="ends after one answer"):
        plugin.more(head)


@pytest.mark.parametrize("head", [b"", b"P\x00" + bytes(17), b"P\x00" + bytes(19), b"X\x00" + bytes(18)])
def test_parsec_takes_no_other_salt(head: bytes) -> None:
    plugin = Parsec(secret())
    plugin.begin(NONCE)
    with pytest.raises(ProtocolError, match="parsec's salt"):
        plugin.more(head)


def test_parsec_makes_at_most_8192_rounds() -> None:
    for exponent in (4, 31, 255):
        plugin = Parsec(secret())
        plugin.begin(NONCE)
        with pytest.raises(ProtocolError, match=f"1024 << {exponent} rounds"):
            plugin.more(bytes((ord("P"), exponent)) + bytes(18))


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(path: Path, public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> Path:
    encoded = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(public.public_bytes(*encoded))
    return path


def test_caching_sha2_encrypts_for_a_key_it_was_given(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    plugin = CachingSha2(secret(public_key=pem(tmp_path / "key.pem", key.public_key())))
    plugin.begin(NONCE[:20])
    sealed = plugin.more(b"\x04")
    assert sealed is not None
    opened = key.decrypt(sealed, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))  # noqa: S303
    assert bytes(a ^ b for a, b in zip(opened, (NONCE[:20] * 2)[: len(opened)], strict=True)) == PASSWORD + b"\0"


def test_caching_sha2_gives_the_password_to_nobody_else() -> None:
    plugin = CachingSha2(secret())
    assert plugin.begin(NONCE[:20]) != plugin.begin(NONCE[1:21])
    with pytest.raises(AuthenticationError, match="not safe") as caught:
        plugin.more(b"\x04")
    assert "server_public_key" in caught.value.hint
    assert plugin.stored() is None
    assert CachingSha2(secret(b"")).begin(NONCE[:20]) == b"\0"
    with pytest.raises(ProtocolError, match="neither ends the login nor"):
        plugin.more(b"\x01")


def test_keys_that_are_none(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    other = pem(tmp_path / "ec.pem", ec.generate_private_key(ec.SECP256R1()).public_key())
    for path, words in ((tmp_path / "text", "cannot be used"), (tmp_path / "gone", "gone"), (other, "is not an RSA")):
        plugin = CachingSha2(secret(public_key=path))
        plugin.begin(NONCE[:20])
        with pytest.raises(ConfigError, match=words):
            plugin.more(b"\x04")
    plugin = CachingSha2(secret(b"x" * 300, public_key=pem(tmp_path / "key.pem", key.public_key())))
    plugin.begin(NONCE[:20])
    with pytest.raises(ConfigError, match="too long for the RSA key"):
        plugin.more(b"\x04")


def test_clear_text_goes_over_private_ways_only() -> None:
    assert ClearPassword(secret(private=True)).begin(b"") == PASSWORD + b"\0"
    assert Dialog(secret(private=True)).begin(b"\x05Password: \0") == PASSWORD + b"\0"
    for kind in (ClearPassword, Dialog):
        with pytest.raises(AuthenticationError, match="where it can be read"):
            kind(secret()).begin(b"\x05Password: \0")
        assert kind(secret(private=True)).stored() is None


def test_pam_may_ask_one_question() -> None:
    plugin = Dialog(secret(private=True))
    with pytest.raises(AuthenticationError, match="unknown kind"):
        plugin.begin(b"\x09What? ")
    plugin.begin(b"\x05Password: ")
    with pytest.raises(AuthenticationError, match="more than one question"):
        plugin.more(b"\x05Code: ")


def test_no_answer_holds_the_password_unless_it_must() -> None:
    for name in PLUGINS:
        plugin = plugin_named(name, secret(private=name in (ClearPassword.name, Dialog.name)))
        data = NONCE[:20] if name in (NativePassword.name, CachingSha2.name) else NONCE
        answer = plugin.begin(b"" if name in (ClearPassword.name, Dialog.name) else data)
        assert (PASSWORD in answer) == (name in (ClearPassword.name, Dialog.name))
        assert sha256(PASSWORD).digest() not in answer
        assert "pässword" not in repr(vars(plugin))
