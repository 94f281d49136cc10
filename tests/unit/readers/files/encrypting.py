"""Encryption of binlogs as the server does it, event by event, with the modes of `cryptography` as they are."""

from __future__ import annotations

import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event, walk
from tests.kit.binlog import bodies


def encrypt_event(event: bytes, offset: int, key: bytes, nonce: bytes, algorithm: str) -> bytes:
    iv = nonce + struct.pack("<I", offset & 0xFFFFFFFF)
    message = event[4:9] + event[0:4] + event[13:]  # the time stamp stands in the length's place
    if algorithm == "ctr":
        secret = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(message)
    else:
        whole = len(message) - len(message) % 16
        secret = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor().update(message[:whole])
        pad = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(iv)  # noqa: S305
        secret += bytes(a ^ b for a, b in zip(message[whole:], pad, strict=False))
    # and the encrypted bytes of that place go where the time stamp was
    return secret[5:9] + secret[:5] + event[9:13] + secret[9:]


def start_encryption(version: int, nonce: bytes, *, flags: int = 0, scheme: int = 1, checksum: int = 1) -> bytes:
    return encode_event(
        EventType.START_ENCRYPTION,
        bodies.start_encryption(version, nonce, scheme=scheme),
        server_id=1,
        checksum=ChecksumAlgorithm(checksum),
        flags=flags,
    )


def encrypt_again(plain: bytes, key: bytes, version: int, nonce: bytes, algorithm: str) -> bytes:
    """A file whose second event is START_ENCRYPTION, encrypted with another key."""
    events = list(walk(plain))
    out = bytearray(BINLOG_MAGIC + bytes(events[0].event))
    out += start_encryption(version, nonce, checksum=events[0].description.checksum)
    for event in events[2:]:
        out += encrypt_event(bytes(event.event), len(out), key, nonce, algorithm)
    return bytes(out)
