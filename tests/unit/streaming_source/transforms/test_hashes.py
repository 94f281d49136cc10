"""The key of hashes: what its file may hold, and that no text shows it."""

from __future__ import annotations

import hashlib
import hmac
import logging
import pickle
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from streaming_source.transforms.hashes import FEWEST_BYTES, MOST_BYTES, HashKey, read_hash_key

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * FEWEST_BYTES


@pytest.mark.parametrize("length", [32, 64, 65, 200])
def test_hashes_are_those_of_the_standard_library_also_behind_pickle(length: int) -> None:
    secret = bytes(range(1, length + 1))
    key = pickle.loads(pickle.dumps(HashKey(secret)))  # noqa: S301  (our own bytes)
    for value in (b"", b"x", b"y" * 1000):
        assert key.hash(value) == hmac.new(secret, value, hashlib.sha256).hexdigest()


def test_a_key_hashes_as_the_standard_library_does_and_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\r\n")
    file.chmod(0o600)
    key = read_hash_key(file)
    assert key.hash("ü".encode()) == hmac.new(KEY, b"\xc3\xbc", hashlib.sha256).hexdigest()
    assert key.fingerprint == HashKey(KEY).fingerprint != HashKey(KEY + b"k").fingerprint
    assert "kkk" not in f"{key} {key!r} {key.fingerprint}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", f"has 0 bytes, but a key has at least {FEWEST_BYTES}"),
        (b"s" * (FEWEST_BYTES - 1) + b"\n", f"has {FEWEST_BYTES - 1} bytes"),
        (b"s" * (MOST_BYTES + 1), f"has more than {MOST_BYTES} bytes: it is not a key"),
    ],
)
def test_a_file_without_a_key_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_hash_key(file)
    assert message in str(refused.value)
    assert "sss" not in str(refused.value)


def test_a_key_that_everyone_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        read_hash_key(file)
    assert f"{file} holds a secret and can be read by every user" in caplog.text
    assert "kkk" not in caplog.text
