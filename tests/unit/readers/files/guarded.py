"""Damaged files in memory that ends at a page nobody may read: `python -m tests.unit.readers.files.guarded SEED COUNT`.

Kernels check bounds themselves. Here a single byte read behind a file's end ends the process, and any error but ours
ends it with a traceback. Files are vectors with a few changes each; every other run goes around the damage.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from typing import TYPE_CHECKING, Any

from replica.errors import ProtocolError
from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, EventType
from replica.protocol.events.decode import decode_description
from replica.readers.files.decrypted import ALGORITHMS, Decrypted, EventCipher
from replica.readers.files.ranges import Walk
from replica.readers.files.readers import StreamWindow
from tests.kit.tree import files
from tests.unit.readers.files.test_window import Chunks
from tests.vectors.load import BINLOGS, HERE

if TYPE_CHECKING:
    from replica.readers.files.ranges import Damage

PAGE = mmap.PAGESIZE
PAGES = 64
LENGTHS = (0, 1, 18, 19, 22, 23, 27, 31, 32, 33, 255, 0xFFFF, 1 << 30, 0x7FFFFFFF, 0xFFFFFFFF)
TYPES = [int(kind) for kind in EventType] + [99, 255]


class Guarded:
    """A window whose last byte is the last of its page."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, (PAGES + 1) * PAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._address + PAGES * PAGE), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.fault: ProtocolError | None = None
        self.base = self.end = 0

    def fill(self, data: bytes) -> None:
        self.base, self.end = self._address + PAGES * PAGE - len(data), len(data)
        ctypes.memmove(self.base, data, len(data))

    def more(self, keep: int) -> bool:  # noqa: ARG002
        return False

    def view(self, begin: int, end: int) -> memoryview:
        return memoryview(ctypes.string_at(self.base + begin, end - begin))


def mutate(data: bytearray, start: int, random: random.Random) -> None:
    """A few changes behind `start`."""
    for _ in range(random.randint(1, 5)):
        if len(data) < start + 8:
            return
        at = random.randrange(start, len(data) - 4)
        match random.randrange(6):
            case 0 | 1:
                data[at] ^= 1 << random.randrange(8)
            case 2:
                data[at : at + 4] = random.choice([*LENGTHS, len(data) - at]).to_bytes(4, "little")
            case 3:
                del data[at : at + random.randint(1, 200)]
            case 4:
                data[at:at] = random.randbytes(random.randint(1, 60))
            case 5:
                data[at] = random.choice(TYPES)
    if random.random() < 0.3:
        del data[random.randint(start, len(data)) :]


def go_through(walk: Walk, *, skip: bool) -> int:
    damage: list[Damage] | None = [] if skip else None
    end = 0
    try:
        for part in walk.ranges(damage):
            if not part.data or part.offset < end:
                raise AssertionError(f"a range at {part.offset} after {end}")
            end = part.end
    except ProtocolError:
        return 1
    return len(damage or ())


def main(seed: int, count: int) -> None:
    dice = random.Random(seed)
    whole = [path.read_bytes() for path in (*BINLOGS, *files(HERE / "mysql", "*.binlog"))]
    small = [data for data in whole if len(data) < (PAGES - 2) * PAGE]
    guarded: Any = Guarded()
    noticed = 0
    for number in range(count):
        data = bytearray(dice.choice(small))
        start = len(BINLOG_MAGIC) + int.from_bytes(data[13:17], "little")
        description = decode_description(bytes(data[len(BINLOG_MAGIC) : start]))
        mutate(data, start, dice)
        window = guarded
        if number % 10:
            guarded.fill(bytes(data))
        else:  # as an encrypted file that does not decrypt to anything
            cipher = EventCipher(bytes(16), bytes(12), dice.choice(ALGORITHMS))
            checksum = dice.choice(list(ChecksumAlgorithm))
            window = StreamWindow(Decrypted(bytes(data[:start]), Chunks([bytes(data[start:])]), cipher, checksum))
            window.more(0)
        walk = Walk(
            "file",
            window,
            description,
            start=start,
            stop=None,
            max_bytes=dice.choice([1, 300, 5000, 8 << 20]),
            cut_at_ddl=dice.random() < 0.5,
            verify=dice.random() < 0.3,
        )
        noticed += go_through(walk, skip=bool(number % 2))
    print(f"seed {seed}: {count} files, {noticed} damages noticed")
    if noticed < count // 10:
        raise AssertionError("the files were hardly damaged")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
