"""Keys of encrypted files, in the file format of MariaDB's file_key_management plugin.

A line is `id;key` or `id;version;key`, with the key in hexadecimal (16, 24 or 32 bytes); `#` begins a comment. A line
without a version is version 1, the only version of that plugin; other plugins rotate keys. The whole file may be
encrypted with `openssl enc -aes-256-cbc -md sha1`; the pass phrase (the server's `file_key_management_filekey`)
decrypts it. A file in another format and a wrong pass phrase are errors. No message and no `repr` may contain a key or
a pass phrase.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from replica.errors import MAY_READ, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_KEY_ID: Final = 1
"""Id of the key that encrypts the server's logs (ENCRYPTION_KEY_SYSTEM_DATA)."""
MAX_KEY_FILE_BYTES: Final = 1 << 20
"""Maximal size of a key file, as in the server."""
_SALTED: Final = b"Salted__"
_SALT_BYTES: Final = 8
_BLOCK_BYTES: Final = 16
_KEY_BYTES: Final = (16, 24, 32)
_DIGESTS: Final = ("sha1", "sha256", "sha512", "sha384", "sha224")
"""Digests of openssl's option `-md`: MariaDB before 12 reads only sha1, and openssl's default is sha256."""
_LINE: Final = re.compile(r"\s*(\d{1,10})\s*;\s*(?:(\d{1,10})\s*;\s*)?([0-9A-Fa-f]+)\s*(?:#.*)?")
_FROM_FILE: Final = "FILE:"


class KeyRing:
    """Keys by id and version."""

    def __init__(self, keys: Mapping[tuple[int, int], bytes]) -> None:
        self._keys = dict(keys)

    def __repr__(self) -> str:
        names = ", ".join(f"{key_id} version {version}" for key_id, version in sorted(self._keys))
        return f"KeyRing({names})"

    @classmethod
    def from_file(cls, path: Path | str, *, filekey: str | None = None) -> Self:
        """Read a key file.

        Args:
            path: The key file.
            filekey: The pass phrase of an encrypted key file, or `FILE:` and the path of a file that contains it.

        Raises:
            ConfigError: The file cannot be read, has another format, or the pass phrase is missing or wrong.
        """
        content = _read(path)
        if not content.startswith(_SALTED):
            return cls(_parse(content, path))
        if filekey is None:
            raise ConfigError(f"The key file {path} is encrypted.", hint="Give its pass phrase (the filekey) too.")
        phrase = filekey.encode()
        if filekey.startswith(_FROM_FILE):
            phrase = _read(filekey.removeprefix(_FROM_FILE)).partition(b"\n")[0].rstrip(b"\r")
        for digest in _DIGESTS:
            opened = _open(content, phrase, digest)
            # A wrong pass phrase gives valid padding once in 256 times, but never a list of keys.
            if opened is not None and _is_text(opened):
                return cls(_parse(opened, path))
        raise ConfigError(
            f"The key file {path} cannot be decrypted with this pass phrase.",
            hint="The file must be encrypted with `openssl enc -aes-256-cbc -md sha1`; sha2 digests are tried as well.",
        )

    def get(self, version: int, key_id: int = SYSTEM_KEY_ID) -> bytes | None:
        """Return the key of a version, None if the ring lacks it."""
        return self._keys.get((key_id, version))


def _read(path: Path | str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be read: {error.strerror}.", hint=MAY_READ) from error
    if len(content) > MAX_KEY_FILE_BYTES:
        raise ConfigError(
            f"{path} is larger than {MAX_KEY_FILE_BYTES} bytes, so it is not a key file.",
            hint="Name the file_key_management_filename of the server.",
        )
    return content


def _open(content: bytes, phrase: bytes, digest: str) -> bytes | None:
    """Decrypt as openssl's EVP_BytesToKey with one round does; None if the padding is wrong."""
    start = len(_SALTED) + _SALT_BYTES
    salt, encrypted = content[len(_SALTED) : start], content[start:]
    if not encrypted or len(encrypted) % _BLOCK_BYTES:
        return None
    derived = block = b""
    while len(derived) < _KEY_BYTES[-1] + _BLOCK_BYTES:
        block = hashlib.new(digest, block + phrase + salt, usedforsecurity=True).digest()
        derived += block
    key, iv = derived[: _KEY_BYTES[-1]], derived[_KEY_BYTES[-1] : _KEY_BYTES[-1] + _BLOCK_BYTES]
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    unpadder = PKCS7(8 * _BLOCK_BYTES).unpadder()
    try:
        return unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()
    except ValueError:
        return None


def _is_text(content: bytes) -> bool:
    return content.isascii() and b"\0" not in content


def _parse(content: bytes, path: Path | str) -> dict[tuple[int, int], bytes]:
    keys: dict[tuple[int, int], bytes] = {}
    for number, line in enumerate(content.decode("latin-1").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if not found or len(found[3]) not in [2 * size for size in _KEY_BYTES]:
            raise ConfigError(
                f"Line {number} of the key file {path} is not a key.",
                hint="A line is `id;hexadecimal key` or `id;version;hexadecimal key`, of 16, 24 or 32 bytes.",
            )
        keys[int(found[1]), int(found[2] or 1)] = bytes.fromhex(found[3])
    if not keys:
        raise ConfigError(
            f"The key file {path} holds no key.", hint="Name the file_key_management_filename of the server."
        )
    return keys
