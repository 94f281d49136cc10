"""Files that MariaDB encrypted (encrypt_binlog=ON): detection by the second event, and choice of key and cipher.

`find_encryption` returns the file's plain start. In it, START_ENCRYPTION has the IGNORABLE flag, as when a server sends
it, which means that the following events are plain. `choose_cipher` returns the cipher for the rest. The file does not
record whether AES-CBC or AES-CTR was used: the first encrypted event shows which one gives a valid event.

Errors: a key version that the ring lacks, a key that gives no valid first event, another encryption scheme. No message
contains a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, ProtocolError, UnsupportedEventError
from replica.files.cipher import ALGORITHMS, Algorithm, EventCipher
from replica.files.keys import SYSTEM_KEY_ID
from replica.protocol import checksum as checksums
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

if TYPE_CHECKING:
    from replica.files.keys import KeyRing

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
    """Return True if at least four bytes have the values required of an event that ends at `end`."""
    header = EventHeader._make(HEADER.unpack_from(event))
    if header.event_type == EventType.ROTATE:  # first in a relay log, with the position of its primary
        return int.from_bytes(event[HEADER_LENGTH : HEADER_LENGTH + 8], "little") < _FAR
    # log_pos is 0 in events that a primary generates for its replica
    return header.event_type in list(EventType) and header.log_pos in (0, end & 0xFFFFFFFF)


def _as_sent(event: bytes, algorithm: ChecksumAlgorithm) -> bytes:
    """Return the event as a dump thread changes it, including its checksum."""
    flags = int.from_bytes(event[_FLAGS_AT:HEADER_LENGTH], "little") | HeaderFlag.IGNORABLE
    changed = event[:_FLAGS_AT] + flags.to_bytes(2, "little") + event[HEADER_LENGTH:]
    return changed if algorithm == ChecksumAlgorithm.NONE else checksums.append(changed[:-CHECKSUM_LENGTH])
