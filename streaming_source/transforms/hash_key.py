"""The key of hashes: read from a file, identified by a fingerprint, and never shown.

`read_hash_key` takes the path of the option `hashKeyFile` and returns a `HashKey`. All bytes of the file count, except
white space at its end, which editors add. The fingerprint is kept beside the targets, so that another key is noticed;
it reveals nothing about the key. A file that cannot be read, is too short to be a key, or too long, is a ConfigError.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final

from replica.errors import ConfigError
from replica.options.secrets import exposed

FEWEST_BYTES: Final = 32
"""Least bytes of a key: the length of a SHA-256. A shorter key is easier to guess than the hash."""
MOST_BYTES: Final = 4096
"""Most bytes of a key. A longer file is probably the wrong one."""
_LABEL: Final = b"mariadb mirror: fingerprint of the key"
_BLOCK: Final = 64
_PADS: Final = (0x36, 0x5C)  # RFC 2104
_DIGITS: Final = 32
_HINT: Final = "Make a key: `openssl rand -hex 32 > FILE`, and keep it: with another key, values get other hashes."

_log = logging.getLogger(__name__)


class HashKey:
    """A key that no text shows.

    Both SHA-256 states of HMAC have processed it already. The module `hmac` would start them again for each value, and
    take twice as long.
    """

    __slots__ = ("_bytes", "_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        self._bytes = key
        block = (key if len(key) <= _BLOCK else hashlib.sha256(key).digest()).ljust(_BLOCK, b"\0")
        self._inner, self._outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in _PADS)

    def __reduce__(self) -> tuple[type[HashKey], tuple[bytes]]:
        return HashKey, (self._bytes,)  # a SHA-256 state cannot be pickled

    def __repr__(self) -> str:
        return "HashKey(…)"

    @property
    def fingerprint(self) -> str:
        """The identity of the key: equal for equal keys. It reveals nothing about the key."""
        return self.hash(_LABEL)[:_DIGITS]

    def hash(self, value: bytes) -> str:
        """Return the HMAC-SHA-256 of `value` as 64 hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(value)
        outer.update(inner.digest())
        return outer.hexdigest()


def read_hash_key(path: str | Path) -> HashKey:
    """Return the key of a file. Log a warning if every user of the machine can read the file.

    Raises:
        ConfigError: the file cannot be read, or is not a key.
    """
    try:
        with Path(path).open("rb") as file:
            key = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"hashKeyFile {path} cannot be read: {error.strerror}.", hint=_HINT) from None
    if len(key) > MOST_BYTES:
        raise ConfigError(f"hashKeyFile {path} has more than {MOST_BYTES} bytes: it is not a key.", hint=_HINT)
    key = key.rstrip()
    if len(key) < FEWEST_BYTES:
        raise ConfigError(
            f"hashKeyFile {path} has {len(key)} bytes, but a key has at least {FEWEST_BYTES}.", hint=_HINT
        )
    for warning in exposed([Path(path)]):
        _log.warning("%s", warning)
    return HashKey(key)
