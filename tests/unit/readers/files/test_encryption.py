"""Encrypted files of real servers, and what happens without the right key."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, HeaderFlag
from replica.protocol.events.binlog_file import walk
from replica.readers.files.binlog import open_binlog
from replica.readers.files.encryption import KeyRing
from tests.kit.tree import files
from tests.unit.readers.files.encrypting import encrypt_again, start_encryption
from tests.unit.readers.files.reading import DESCRIPTION, as_file, read, read_bytes
from tests.vectors.load import HERE, name_of

if TYPE_CHECKING:
    from pathlib import Path

ENCRYPTED = files(HERE, "*/*.encrypted")
KEYS = KeyRing.from_file(HERE / "encryption.keys")
SENT = (HERE / "11.8" / "encryption.cbc.sent").read_bytes()
NONCE = bytes(range(1, 13))
every_file = pytest.mark.parametrize("path", ENCRYPTED, ids=name_of)


@every_file
def test_a_file_is_what_the_server_sends(path: Path) -> None:
    """Byte for byte, also the START_ENCRYPTION event."""
    sent = path.with_suffix(".sent").read_bytes()
    assert {len(event.event) % 16 for event in walk(sent)} == set(range(16))
    got = read(path, keys=KEYS)
    assert got.error is None
    assert BINLOG_MAGIC + got.data == sent
    assert got.whole == [True]
    assert path.read_bytes()[300:] != sent[300:]


@every_file
def test_compressed_as_well(tmp_path: Path, path: Path) -> None:
    got = read_bytes(tmp_path, gzip.compress(path.read_bytes()), keys=KEYS)
    assert BINLOG_MAGIC + got.data == path.with_suffix(".sent").read_bytes()


@every_file
def test_the_algorithm_may_be_told(path: Path) -> None:
    right, wrong = ("cbc", "ctr") if ".cbc" in path.name else ("ctr", "cbc")
    with open_binlog(path, KEYS, encryption_algorithm=right) as file:  # type: ignore[arg-type]
        assert len(list(file.ranges())) == 1
    with pytest.raises(ConfigError, match=f"by AES-{wrong.upper()}"):
        open_binlog(path, KEYS, encryption_algorithm=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("algorithm", ["cbc", "ctr"])
def test_other_key_versions(tmp_path: Path, size: int, algorithm: str) -> None:
    """As after a key rotation: each file names the version it was written with."""
    ring = KeyRing({(1, version): bytes([version] * size) for version in range(1, 5)})
    for version in (1, 2, 4):
        data = encrypt_again(SENT, bytes([version] * size), version, NONCE, algorithm)
        got = read_bytes(tmp_path, data, keys=ring)
        assert got.error is None
        second = len(DESCRIPTION) + 40
        assert got.data[second:] == SENT[4 + second :]


def test_without_checksums(tmp_path: Path) -> None:
    """The position in the first event tells whether the key is right."""
    plain = (HERE / "11.8" / "minimal_image.binlog").read_bytes()
    events = [bytes(event.event) for event in walk(plain)]
    moved = bytearray(BINLOG_MAGIC + events[0] + start_encryption(1, NONCE, checksum=0, flags=HeaderFlag.IGNORABLE))
    for event in events[1:]:
        end = len(moved) + len(event)
        moved += event[:13] + (end.to_bytes(4, "little") if event[13:17] != bytes(4) else bytes(4)) + event[17:]
    key = KEYS.get(1)
    assert key is not None
    for algorithm in ("cbc", "ctr"):
        got = read_bytes(tmp_path, encrypt_again(bytes(moved), key, 1, NONCE, algorithm), keys=KEYS)
        assert got.error is None
        assert got.data[len(events[0]) + 36 :] == bytes(moved[4 + len(events[0]) + 36 :])
        with pytest.raises(ConfigError, match="cannot be decrypted"):
            open_binlog(tmp_path / "file", KeyRing({(1, 1): b"x" * 16}))


@every_file
def test_without_a_key(path: Path) -> None:
    with pytest.raises(ConfigError, match="no key file was given") as caught:
        open_binlog(path)
    assert "version 1 of key id 1" in caught.value.message
    with pytest.raises(ConfigError, match="key file does not have"):
        open_binlog(path, KeyRing({(1, 2): b"x" * 16, (2, 1): b"x" * 16}))


@every_file
def test_with_another_key(path: Path) -> None:
    key = b"a secret of 16 B"
    with pytest.raises(ConfigError) as caught:
        open_binlog(path, KeyRing({(1, 1): key}))
    assert "cannot be decrypted with version 1 of key id 1 by AES-CBC or AES-CTR" in caught.value.message
    assert key.hex() not in str(caught.value)
    assert "a secret" not in str(caught.value)


def test_another_scheme(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(as_file([start_encryption(1, NONCE, scheme=2), bytes(100)]))
    with pytest.raises(UnsupportedEventError, match="scheme 2"):
        open_binlog(path, KEYS)


def test_a_file_as_a_server_sent_it_needs_no_key(tmp_path: Path) -> None:
    data = as_file([start_encryption(1, NONCE, flags=HeaderFlag.IGNORABLE)])
    assert read_bytes(tmp_path, data).data == data[4:]
    assert read(HERE / "11.8" / "encryption.cbc.sent").data == SENT[4:]


def test_a_file_that_ends_with_its_start(tmp_path: Path) -> None:
    data = as_file([start_encryption(1, NONCE)])
    got = read_bytes(tmp_path, data, keys=KEYS)
    assert got.error is None
    assert len(got.data) == len(data) - 4
