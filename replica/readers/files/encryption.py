"""Encrypted binlog files (encrypt_binlog=ON): detection, key files, choice of a key.

`find_encryption` returns the file's plain start, in which START_ENCRYPTION has the IGNORABLE flag. A server sends the
event in this form, and the flag means that the following events are plain. `choose_cipher` returns the cipher for the
rest. The file does not record whether AES-CBC or AES-CTR was used: the first encrypted event shows which one gives a
valid event.

Errors: a key version that the ring lacks, a key that gives no valid first event, another encryption scheme. No message
contains a secret.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from replica.errors import MAY_READ, ConfigError, ProtocolError, UnsupportedEventError
from replica.protocol import header as checksums
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    FIRST_POSITION,
    HEADER_LENGTH,
    ChecksumAlgorithm,
    EventType,
    HeaderFlag,
)
from replica.protocol.events.decode import (
    FormatDescriptionEvent,
    StartEncryptionEvent,
    decode,
    decode_description,
    parse_header,
)
from replica.protocol.header import HEADER, EventHeader
from replica.readers.files.decrypted import ALGORITHMS, Algorithm, EventCipher

if TYPE_CHECKING:
    from collections.abc import Mapping
# A line is `id;key` or `id;version;key`, with the key in hexadecimal (16, 24 or 32 bytes); `#` begins a comment. A
# line without a version is version 1, the only version of that plugin; other plugins rotate keys. The whole file may
# be encrypted with `openssl enc -aes-256-cbc -md sha1`; the pass phrase (the server's `file_key_management_filekey`)
# decrypts it. A file in another format and a wrong pass phrase are errors. No message and no `repr` may contain a key
# or a pass phrase.


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


HEAD_BYTES: Final = 8 << 10
"""Bytes that contain the two plain events at the start and most of the first encrypted one."""
_SCHEME: Final = 1
_FLAGS_AT: Final = 17
_FAR: Final = 1 << 40
"""Larger than any binlog file, in bytes."""


class Encryption(NamedTuple):
    """Content of an encrypted file's plain start."""

    description: FormatDescriptionEvent
    event: StartEncryptionEvent
    plain_head: bytes
    """Everything before the first encrypted event, as readers must see it."""

    @property
    def least_bytes(self) -> int:
        """Minimal length of an event in bytes."""
        return HEADER_LENGTH + (CHECKSUM_LENGTH if self.description.checksum else 0)


def find_encryption(head: bytes) -> Encryption | None:
    """Return the encryption of a file.

    None for a file that is not encrypted, and for one with a damaged start, which its reader will report.
    """
    view = memoryview(head)
    try:
        start = FIRST_POSITION + parse_header(view, FIRST_POSITION).event_length
        description = decode_description(view[FIRST_POSITION:start])
        end = start + parse_header(view, start).event_length
        event = decode(view[start:end], description)
    except ProtocolError:
        return None
    if not isinstance(event, StartEncryptionEvent) or event.header.flags & HeaderFlag.IGNORABLE:
        return None
    return Encryption(description, event, head[:start] + _as_sent(head[start:end], description.checksum))


def choose_cipher(
    name: str, encryption: Encryption, keys: KeyRing | None, algorithm: Algorithm | None, encrypted: bytes
) -> EventCipher:
    """Return the cipher that gives a valid first event; `algorithm` None tries both.

    Raises:
        ConfigError: The key is missing or wrong.
        UnsupportedEventError: The encryption scheme is unknown.
    """
    version, scheme = encryption.event.key_version, encryption.event.scheme
    wanted = f"version {version} of key id {SYSTEM_KEY_ID}"
    if scheme != _SCHEME:
        raise UnsupportedEventError(
            f"{name} is encrypted by scheme {scheme}; only scheme 1 is supported", offset=FIRST_POSITION
        )
    key = None if keys is None else keys.get(version)
    if key is None:
        raise ConfigError(
            f"{name} is encrypted with {wanted}"
            + (", and no key file was given." if keys is None else ", which the key file does not have."),
            hint="Give the server's file_key_management_filename, or read from the server, which decrypts.",
        )
    ciphers = [EventCipher(key, encryption.event.nonce, each) for each in ALGORITHMS if algorithm in (None, each)]
    for cipher in ciphers:
        if len(encrypted) < HEADER_LENGTH + 1 or _makes_sense(cipher, encryption, encrypted):
            return cipher
    tried = " or ".join(f"AES-{cipher.algorithm.upper()}" for cipher in ciphers)
    raise ConfigError(
        f"{name} cannot be decrypted with {wanted} by {tried}.",
        hint="The key file belongs to another server or has another key with that id, or the first event is damaged.",
    )


def _makes_sense(cipher: EventCipher, encryption: Encryption, encrypted: bytes) -> bool:
    offset = len(encryption.plain_head)
    length = int.from_bytes(encrypted[9:13], "little")
    if length < encryption.least_bytes:
        return False
    event = cipher.event(offset, encrypted[:length])
    if encryption.description.checksum and len(event) == length:
        stored = int.from_bytes(event[-CHECKSUM_LENGTH:], "little")
        if stored == checksums.event_crc32(memoryview(event)[:-CHECKSUM_LENGTH]):
            return True
    return _reads_well(event, offset + length)


def _reads_well(event: bytes, end: int) -> bool:
    """Return True if a decrypted event has valid values in its header and ends at `end`.

    The checked fields have at least four bytes, so a wrong key rarely passes.
    """
    header = EventHeader._make(HEADER.unpack_from(event))
    if header.event_type == EventType.ROTATE:  # the first event of a relay log, whose log_pos is the primary's
        return int.from_bytes(event[HEADER_LENGTH : HEADER_LENGTH + 8], "little") < _FAR
    # log_pos is 0 in events that a primary generates for its replica
    return header.event_type in list(EventType) and header.log_pos in (0, end & 0xFFFFFFFF)


def _as_sent(event: bytes, algorithm: ChecksumAlgorithm) -> bytes:
    """Return the event as a dump thread changes it, including its checksum."""
    flags = int.from_bytes(event[_FLAGS_AT:HEADER_LENGTH], "little") | HeaderFlag.IGNORABLE
    changed = event[:_FLAGS_AT] + flags.to_bytes(2, "little") + event[HEADER_LENGTH:]
    return changed if algorithm == ChecksumAlgorithm.NONE else checksums.append(changed[:-CHECKSUM_LENGTH])
