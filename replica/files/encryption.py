"""Files that MariaDB encrypted (encrypt_binlog=ON): told by their second event, opened with the key that it names.

In: the first bytes of a file and a KeyRing. Out: the cipher for the rest, and the file's plain start, in which
START_ENCRYPTION gets the IGNORABLE flag that it has when a server sends it: it says that what follows is plain. The
file does not tell AES-CBC from AES-CTR: the first encrypted event shows which makes sense.

Refused: a key version that the ring does not have, a key that makes no sense of the first event, another encryption
scheme. Secrets are not in any message.
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
"""Enough for the two plain events at the start and most of the first encrypted one."""
_SCHEME: Final = 1
_FLAGS_AT: Final = 17
_FAR: Final = 1 << 40
"""No binlog file is that long."""


class Encryption(NamedTuple):
    """The word of an encrypted file's plain start."""

    description: FormatDescriptionEvent
    event: StartEncryptionEvent
    plain_head: bytes
    """Everything before the first encrypted event, as a reader is to see it."""

    @property
    def least_bytes(self) -> int:
        """The shortest an event can be."""
        return HEADER_LENGTH + (CHECKSUM_LENGTH if self.description.checksum else 0)


def find_encryption(head: bytes) -> Encryption | None:
    """Find how a file is encrypted; None for one that is not, also where its start is damaged: its reader will see."""
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
    """Choose the cipher that makes sense of the first bytes after the plain head; `algorithm` None tries both."""
    version, scheme = encryption.event.key_version, encryption.event.scheme
    wanted = f"version {version} of key id {SYSTEM_KEY_ID}"
    if scheme != _SCHEME:
        raise UnsupportedEventError(f"{name} is encrypted by scheme {scheme}, only 1 is known", offset=FIRST_POSITION)
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
        f"{name} does not open with {wanted} by {tried}.",
        hint="The key file is another server's or has another key under that number; or the first event is damaged.",
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
    """Tell whether four bytes or more are what they have to be in an event that ends there."""
    header = EventHeader._make(HEADER.unpack_from(event))
    if header.event_type == EventType.ROTATE:  # first in a relay log, with the position of its primary
        return int.from_bytes(event[HEADER_LENGTH : HEADER_LENGTH + 8], "little") < _FAR
    # 0 in what a primary makes up for its replica
    return header.event_type in list(EventType) and header.log_pos in (0, end & 0xFFFFFFFF)


def _as_sent(event: bytes, algorithm: ChecksumAlgorithm) -> bytes:
    """Return the event as a dump thread changes it, checksum included."""
    flags = int.from_bytes(event[_FLAGS_AT:HEADER_LENGTH], "little") | HeaderFlag.IGNORABLE
    changed = event[:_FLAGS_AT] + flags.to_bytes(2, "little") + event[HEADER_LENGTH:]
    return changed if algorithm == ChecksumAlgorithm.NONE else checksums.append(changed[:-CHECKSUM_LENGTH])
