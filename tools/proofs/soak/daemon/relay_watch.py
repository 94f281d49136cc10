"""Independent reader of a relay log that is being written, which finds the groups that are whole on disk.

In: the daemon's relay directory. Out: the GTID of every whole group, and a copy of the files, which retention does not
remove. The module uses no code of the project, and reads the binlog format by its definition, each event with its
CRC32. It refuses three conditions, with file and offset: a repeated or missing sequence number, whole groups that
vanish from an existing file, and an incomplete group in a file that has a successor. In the domain whose sequence
numbers go back, it checks the unique numbers of the transactions instead (going_back.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from tools.proofs.soak.daemon.going_back import CARRIED, DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
GTID = struct.Struct("<QIB")
QUERY, XID, XA_PREPARE, GTID_EVENT, QUERY_COMPRESSED, INCIDENT = 2, 16, 38, 162, 165, 26
STANDALONE = 1
CRC_BYTES = 4
READ_BYTES = 96 << 20
"""More than the largest group of the load: a group is looked at as a whole."""

_NAME = re.compile(r"relay\.(\d{6,})")


@dataclass
class _File:
    """One relay file as far as it was read; the descriptor keeps it readable when retention unlinks it."""

    number: int
    path: Path
    copy: Path
    descriptor: int
    inode: int
    end: int = 0
    groups: int = 0


class _Found(NamedTuple):
    """One group, in the order of the log; `before` is the sequence number that its domain had."""

    file: int
    end: int
    domain: int
    sequence: int
    before: int


@dataclass
class RelayWatch:
    """Thread-safe; `poll` reads on."""

    directory: Path
    archive: Path
    server_of: dict[tuple[int, int], int] = field(default_factory=dict)
    """(domain, sequence number) -> server id, of every group found."""
    counted: list[tuple[int, int]] = field(default_factory=list)
    """Server id and sequence number of the groups whose numbers go back, in order: the first one carries a 1."""
    position: dict[int, int] = field(default_factory=dict)
    """The last sequence number per domain."""
    removed: int = 0
    """Files that retention took."""
    _open: dict[int, _File] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)
    _order: list[_Found] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread polls until this ends."""
        with self._lock:
            yield

    def poll(self) -> None:
        with self._lock:
            self._find()
            numbers = sorted(self._open)
            for number, later in zip_longest(numbers, numbers[1:]):
                file = self._open[number]
                self._read(file)
                if later is not None:
                    self._finish(file)

    def missing(self, gtids: list[str]) -> list[str]:
        """Those that are not whole on disk."""
        absent = []
        for text in gtids:
            gtid, _, carried = text.partition("=")
            domain, server, sequence = map(int, gtid.split("-"))
            if carried:
                place = int(carried)
                there = self.counted[place - 1 : place] == [(server, sequence)]
            else:
                there = self.server_of.get((domain, sequence)) == server
            if not there:
                absent.append(text)
        return absent

    @property
    def groups(self) -> int:
        """How many were found."""
        return len(self._order)

    @property
    def out_of_order(self) -> int:
        """How many have a sequence number that is not above the one before."""
        numbers = [sequence for _, sequence in self.counted]
        return sum(later <= earlier for earlier, later in pairwise(numbers))

    def names_one_place(self, *, before: int) -> bool:
        """Whether the position at the beginning of file `before` is above every number behind which they went back."""
        with self._lock:
            went_back = [one.before for one in self._order if one.domain == DOMAIN and one.sequence <= one.before]
            there = next((one for one in self._order if one.domain == DOMAIN and one.file >= before), None)
            return before == 1 or not went_back or there is None or there.before > max(went_back)

    def check_retained(self) -> None:
        """No file that is still there has lost a group that was seen in it."""
        with self._lock:
            for number, end in list(self._done.items()):
                try:
                    size = relay_file(self.directory, number).stat().st_size
                except FileNotFoundError:
                    del self._done[number]
                    self.removed += 1
                    continue
                assert size >= end, f"relay.{number:06d} was cut to {size}, whole groups reached to {end}"
            for file in self._open.values():
                size = os.fstat(file.descriptor).st_size
                assert size >= file.end or not file.groups, f"{file.path} was cut to {size}, below {file.end}"

    def forget_behind(self, position: dict[int, int]) -> None:
        """Somebody removed files, and the log goes on behind `position` (domain -> sequence number): in new files.

        What was found behind it is gone, from the copies too. Refused: a position that the log has never had.
        """
        ahead = {domain: last for domain, last in position.items() if last > self.position.get(domain, 0)}
        assert not ahead, f"the log is said to have got to {ahead}, found was {self.position}"
        while self._order and self._order[-1].sequence > position.get(self._order[-1].domain, 0):
            gone = self._order.pop()
            self.server_of.pop((gone.domain, gone.sequence), None)
            if gone.domain == DOMAIN:
                self.counted.pop()
            self.position[gone.domain] = gone.before
        last = self._order[-1] if self._order else _Found(0, 0, 0, 0, 0)
        for number in [*self._open, *self._done]:
            copy = self.archive / f"relay.{number:06d}"
            if number > last.file:
                copy.unlink(missing_ok=True)
                self._done.pop(number, None)
            elif number == last.file:
                os.truncate(copy, last.end)
        for number in [number for number in self._open if number >= last.file]:
            os.close(self._open.pop(number).descriptor)
        if last.file and relay_file(self.directory, last.file).exists():
            self._done[last.file] = last.end

    def close(self) -> None:
        for file in self._open.values():
            os.close(file.descriptor)
        self._open.clear()

    def _find(self) -> None:
        for entry in os.scandir(self.directory):
            match = _NAME.fullmatch(entry.name)
            if match is None or int(match[1]) in self._done:
                continue
            number = int(match[1])
            known = self._open.get(number)
            if known is not None and known.inode == entry.inode():
                continue
            if known is not None:
                # A file without a whole group may be made again under the same number, no other.
                assert not known.groups, f"{known.path} with {known.groups} whole groups was replaced"
                os.close(known.descriptor)
            path = self.directory / entry.name
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                self._open.pop(number, None)
                continue  # it is being made again, or was taken: then the groups in it are missed
            copy = self.archive / entry.name
            copy.write_bytes(b"")
            self._open[number] = _File(number, path, copy, descriptor, os.fstat(descriptor).st_ino)

    def _read(self, file: _File) -> None:
        size = os.fstat(file.descriptor).st_size
        if not file.end:
            if os.pread(file.descriptor, len(MAGIC), 0) != MAGIC:
                return
            self._keep(file, MAGIC)
        while file.end < size:
            data = os.pread(file.descriptor, min(READ_BYTES, size - file.end), file.end)
            used = self._whole_groups(file, data)
            if not used:
                return
            self._keep(file, data[:used])

    def _keep(self, file: _File, data: bytes) -> None:
        with file.copy.open("ab") as copy:
            copy.write(data)
        file.end += len(data)

    def _whole_groups(self, file: _File, data: bytes) -> int:
        """How far `data` is whole groups, and what stands between groups; each group found is entered."""
        place = end = begin = 0
        group: tuple[int, int, int] | None = None
        standalone = False
        while place + HEADER.size <= len(data):
            _, kind, server, length, _, _ = HEADER.unpack_from(data, place)
            stop = place + length
            if length < HEADER.size + CRC_BYTES or stop > len(data):
                break
            if crc32(data[place : stop - CRC_BYTES]) != int.from_bytes(data[stop - CRC_BYTES : stop], "little"):
                break
            if kind == GTID_EVENT:
                if group is not None:
                    break
                sequence, domain, flags = GTID.unpack_from(data, place + HEADER.size)
                group, standalone, begin = (domain, server, sequence), bool(flags & STANDALONE), place
            elif group is not None and self._ends(kind, data[place : stop - CRC_BYTES], standalone=standalone):
                carried = set(CARRIED.findall(data, begin, stop)) if group[0] == DOMAIN else set()
                self._enter(file, group, file.end + stop, carried)
                group = None
            place = stop
            if group is None:
                end = place
        return end

    @staticmethod
    def _ends(kind: int, event: bytes, *, standalone: bool) -> bool:
        if standalone:
            return kind in (QUERY, QUERY_COMPRESSED, INCIDENT)
        return kind in (XID, XA_PREPARE) or (kind == QUERY and event.endswith((b"\0COMMIT", b"\0ROLLBACK")))

    def _enter(self, file: _File, group: tuple[int, int, int], end: int, carried: set[bytes]) -> None:
        domain, server, sequence = group
        last = self.position.get(domain, 0)
        where = f"{file.path.name}, the group that ends at {end}"
        if domain == DOMAIN:
            wanted = len(self.counted) + 1
            found = sorted(map(int, carried))
            assert found == [wanted], f"{domain}-{server}-{sequence} carries {found}, not {wanted}: {where}"
            self.counted.append((server, sequence))
        else:
            assert (domain, sequence) not in self.server_of, f"{domain}-{server}-{sequence} is there twice: {where}"
            assert sequence == last + 1, f"{domain}-{server}-{sequence} follows {last}: {where}"
        self.server_of[domain, sequence] = server
        self._order.append(_Found(file.number, end, domain, sequence, last))
        self.position[domain] = sequence  # last: other threads look up its server
        file.groups += 1

    def _finish(self, file: _File) -> None:
        """A file with a successor holds whole groups up to its end, or up to the zeros of its reserve."""
        rest = os.pread(file.descriptor, READ_BYTES, file.end)
        assert not rest.strip(b"\0"), (
            f"{file.path} has a successor, but {len(rest)} bytes from {file.end} on are no whole groups"
        )
        if not file.groups:
            file.copy.unlink()
        self._done[file.number] = file.end
        os.close(file.descriptor)
        del self._open[file.number]


def relay_file(directory: Path, number: int) -> Path:
    return directory / f"relay.{number:06d}"
