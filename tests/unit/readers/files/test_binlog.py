"""Opening: what is recognised by its first bytes, what is refused with which words, and standard input."""

from __future__ import annotations

import contextlib
import gc
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replica.errors import ConfigError, ProtocolError, TruncatedError, UnsupportedEventError
from replica.readers.files.binlog import open_binlog
from replica.readers.files.encryption import KeyRing
from tests.unit.readers.files.reading import TRANSACTIONS, as_file, read
from tests.unit.readers.files.test_ranges import GROUP
from tests.unit.readers.files.test_readers import write_all
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = {
    "plain": TRANSACTIONS,
    "gzip": gzip.compress(TRANSACTIONS),
    "zstd": bytes(pa.Codec("zstd").compress(TRANSACTIONS)),
    "xz": lzma.compress(TRANSACTIONS),
}


@pytest.mark.parametrize("form", FORMS)
def test_names_do_not_matter(tmp_path: Path, form: str) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(FORMS[form])
    with open_binlog(str(path)) as file:
        assert file.description.server_version.startswith("11.8")
        assert file.seekable == (form == "plain")
        assert file.size == len(FORMS[form])
        assert b"".join(part.data for part in file.ranges()) == TRANSACTIONS[4:]
        assert form == "plain" or file.consumed == file.size


def open_files() -> set[str]:
    """What the descriptors of this process are for."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them, or another thread's
            found.add(str(descriptor.readlink()))
    return found


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\xfebi", "fe 62 69"),
        (b"./bin.000001\n", "2e 2f 62 69"),
        (b"\xfebin", "after 4 bytes"),
        (TRANSACTIONS[:100], "after 100 bytes"),
        (gzip.compress(b"some text, not a binlog"), "compressed content"),
        (gzip.compress(b""), "after 0 bytes"),
        (TRANSACTIONS[:4] + GROUP, "before any FORMAT_DESCRIPTION"),
        (TRANSACTIONS[:13] + b"\xff\xff\xff\x7f" + TRANSACTIONS[17:], "2147483647 bytes"),
        (TRANSACTIONS[:13] + b"\x05\0\0\0" + TRANSACTIONS[17:], "5 bytes"),
    ],
    ids=range(10),
)
def test_what_is_no_binlog(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ProtocolError) as caught:
        open_binlog(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    del caught  # its frames hold the map
    gc.collect()
    assert str(path.resolve()) not in open_files()


def test_what_says_more(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TRANSACTIONS[:4])
    with pytest.raises(TruncatedError):
        open_binlog(path)
    path.write_bytes(b"\xfdbin" + bytes(100))
    with pytest.raises(UnsupportedEventError, match="encrypted by MySQL"):
        open_binlog(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        open_binlog(tmp_path / "none")
    with pytest.raises(ConfigError, match="is a folder"):
        open_binlog(tmp_path)


@contextlib.contextmanager
def standard_input(descriptor: int) -> Iterator[None]:
    saved = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def piped(data: bytes) -> int:
    read_end, write_end = os.pipe()
    Thread(target=write_all, args=(write_end, data)).start()
    return read_end


@pytest.mark.parametrize("form", FORMS)
def test_standard_input(tmp_path: Path, form: str) -> None:
    """From a pipe; a plain file that is redirected is mapped, as if it had been named."""
    data = FORMS[form]
    (tmp_path / "file").write_bytes(data)
    for descriptor, size, seekable in (
        (piped(data), None, False),
        (os.open(tmp_path / "file", os.O_RDONLY), len(data), form == "plain"),
    ):
        with standard_input(descriptor), open_binlog("-") as file:
            assert (file.name, file.size, file.seekable) == ("standard input", size, seekable)
            assert b"".join(part.data for part in file.ranges()) == TRANSACTIONS[4:]
            assert file.consumed == len(data)
        os.close(descriptor)


def test_an_encrypted_file_from_standard_input() -> None:
    path = HERE / "11.8" / "encryption.ctr.encrypted"
    descriptor = piped(path.read_bytes())
    with standard_input(descriptor), open_binlog("-", KeyRing.from_file(HERE / "encryption.keys")) as file:
        assert b"".join(part.data for part in file.ranges()) == path.with_suffix(".sent").read_bytes()[4:]
    os.close(descriptor)


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(path)!r}, 'wb').write({as_file([GROUP])!r})"])
    assert read(path).data == as_file([GROUP])[4:]
    assert writer.wait() == 0
