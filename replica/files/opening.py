"""Function `open_binlog`: opens a path or `-` as a `BinlogFile`, whatever the format of the file.

It recognises files by their first bytes, never by name. They may be plain binlogs (mapped if they are regular files),
gzip, zstd and xz around them, or files that MariaDB encrypted. Other files, files that cannot be opened, and encrypted
files without their key are errors.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING, Final

from replica.errors import MAY_READ, ConfigError, ProtocolError, UnsupportedEventError
from replica.files.binlog import BinlogFile
from replica.files.decrypted import Decrypted
from replica.files.encryption import HEAD_BYTES, choose_cipher, find_encryption
from replica.files.readers import COMPRESSIONS, Decompressed, FileReader, Prefixed
from replica.files.window import ByteSource, MappedWindow, StreamWindow
from replica.protocol.constants import BINLOG_MAGIC

if TYPE_CHECKING:
    from pathlib import Path

    from replica.files.cipher import Algorithm
    from replica.files.keys import KeyRing

STANDARD_INPUT: Final = "-"
_MAGIC_BYTES: Final = 6  # the longest magic, xz's
_MYSQL_ENCRYPTED: Final = b"\xfdbin"


def open_binlog(
    path: Path | str, keys: KeyRing | None = None, *, encryption_algorithm: Algorithm | None = None
) -> BinlogFile:
    """Open one binlog or relay log file; `-` is standard input.

    Args:
        path: The file.
        keys: The keys of files that MariaDB encrypted.
        encryption_algorithm: `cbc` or `ctr`; None detects it.

    Raises:
        ConfigError: The file cannot be read, or the key is missing or wrong.
        ProtocolError: The file is not a binlog.
    """
    name = str(path)
    if name == STANDARD_INPUT:
        return _open(os.dup(0), "standard input", keys, encryption_algorithm)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}.", hint=MAY_READ) from error
    return _open(descriptor, name, keys, encryption_algorithm)


def _open(descriptor: int, name: str, keys: KeyRing | None, algorithm: Algorithm | None) -> BinlogFile:
    try:
        return _identify(descriptor, name, keys, algorithm)
    except BaseException:
        os.close(descriptor)
        raise


def _identify(descriptor: int, name: str, keys: KeyRing | None, algorithm: Algorithm | None) -> BinlogFile:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{name} is a folder.", hint="Name the binlog files in it.")
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    magic, _ = _read_head(FileReader(descriptor), _MAGIC_BYTES)
    source = FileReader(descriptor, magic)
    compression = next((found for begins, found in COMPRESSIONS.items() if magic.startswith(begins)), None)
    if compression is None:
        _check_magic(magic, name)
    reader: ByteSource = source if compression is None else Decompressed(name, source, *compression)
    head, fault = _read_head(reader, HEAD_BYTES)
    encryption = find_encryption(head)
    if encryption is not None:
        plain = encryption.plain_head
        cipher = choose_cipher(name, encryption, keys, algorithm, head[len(plain) :])
        rest = Prefixed(head[len(plain) :], reader, fault)
        reader = Decrypted(plain, rest, cipher, encryption.description.checksum)
    elif compression is None and size is not None and os.lseek(descriptor, 0, os.SEEK_CUR) == len(head):
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        return BinlogFile(name, descriptor, MappedWindow(memory), source=source, size=size, seekable=True)
    else:
        reader = Prefixed(head, reader, fault)
    return BinlogFile(name, descriptor, StreamWindow(reader), source=source, size=size, seekable=False)


def _read_head(reader: ByteSource, size: int) -> tuple[bytes, ProtocolError | None]:
    """Read the first bytes; return them with the error that follows them, if any."""
    buffer = bytearray(size)
    fill = 0
    try:
        while fill < size and (count := reader.readinto(memoryview(buffer)[fill:])):
            fill += count
    except ProtocolError as error:
        return bytes(buffer[:fill]), error
    return bytes(buffer[:fill]), None


def _check_magic(head: bytes, name: str) -> None:
    if head.startswith(BINLOG_MAGIC):
        return
    if head.startswith(_MYSQL_ENCRYPTED):
        raise UnsupportedEventError(
            f"{name} was encrypted by MySQL", offset=0, hint="Fetch it from the server, which decrypts what it sends."
        )
    what = (
        "is empty"
        if not head
        else f"is not a binlog file: it begins with {head[:4].hex(' ')}, not {BINLOG_MAGIC.hex(' ')}"
    )
    raise ProtocolError(f"{name} {what}", offset=0)
