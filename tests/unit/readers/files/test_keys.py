"""Key files: what MariaDB's plugin reads, and openssl's encryption around it; nothing ever shows a key."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.readers.files.encryption import MAX_KEY_FILE_BYTES, KeyRing
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from pathlib import Path

KEY = "770a8a65da156d24ee2a093277530142"
LONG = "4b01f8ae0c9a2f1e0d5c6b7a8899aabbccddeeff00112233445566778899aabb"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "keys"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def encrypt(path: Path, target: Path, phrase: str, digest: str) -> Path:
    """As MariaDB's manual tells to."""
    command = ["openssl", "enc", "-aes-256-cbc", "-md", digest, "-pass", f"pass:{phrase}", "-in", path, "-out", target]
    subprocess.run(command, check=True, capture_output=True)
    return target


def test_the_keys_of_a_file(tmp_path: Path) -> None:
    text = f"# comment\n\n1;{KEY}\n  2 ; {LONG.upper()}  # the other\r\n1;7;{KEY[::-1]}\n3;{'ab' * 24}"
    ring = KeyRing.from_file(write(tmp_path, text))
    assert ring.get(1) == bytes.fromhex(KEY)
    assert ring.get(7) == bytes.fromhex(KEY[::-1])
    assert ring.get(1, key_id=2) == bytes.fromhex(LONG)
    assert ring.get(1, key_id=3) == b"\xab" * 24
    assert ring.get(2) is None
    assert repr(ring) == "KeyRing(1 version 1, 1 version 7, 2 version 1, 3 version 1)"


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "1\n", f"x;{KEY}", f"1;{KEY[:-1]}", f"1;{KEY}00", "1;zz" + KEY[2:], f"1;2;3;{KEY}", "\0\1\2"],
    ids=range(9),  # the name of a test is in the path of its files
)
def test_no_key_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KeyRing.from_file(write(tmp_path, text))
    assert KEY[:10] not in str(caught.value)
    assert "key" in caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        KeyRing.from_file(tmp_path / "none")
    with pytest.raises(ConfigError, match="larger than"):
        KeyRing.from_file(write(tmp_path, b"#" * (MAX_KEY_FILE_BYTES + 1)))


@pytest.mark.parametrize("digest", ["sha1", "sha224", "sha256", "sha384", "sha512"])
def test_an_encrypted_file(tmp_path: Path, digest: str) -> None:
    path = encrypt(HERE / "encryption.keys", tmp_path / "keys.enc", "pass phrase", digest)
    ring = KeyRing.from_file(path, filekey="pass phrase")
    assert ring.get(1) == bytes.fromhex(KEY)
    phrase = tmp_path / "phrase"
    phrase.write_text("pass phrase\n")
    assert repr(KeyRing.from_file(path, filekey=f"FILE:{phrase}")) == repr(ring)


def test_the_wrong_pass_phrase(tmp_path: Path) -> None:
    """Also where the padding happens to be right, as it is once in 256 times."""
    path = encrypt(write(tmp_path, f"1;{KEY}\n"), tmp_path / "keys.enc", "right", "sha1")
    for number in range(300):
        with pytest.raises(ConfigError) as caught:
            KeyRing.from_file(path, filekey=f"wrong{number}")
        assert f"wrong{number}" not in str(caught.value)
        assert "cannot be decrypted" in caught.value.message
    with pytest.raises(ConfigError, match="is encrypted"):
        KeyRing.from_file(path)
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        KeyRing.from_file(write(tmp_path, path.read_bytes()[:-3]), filekey="right")
