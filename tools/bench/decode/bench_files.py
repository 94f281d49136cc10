"""Binlog files of every kind, read to the last range: `scripts/bench files [--workload W] [--mb N] [--json]`.

One binlog as the server wrote it, mapped and from a pipe, compressed three ways, and encrypted two ways. Beside each
the least that has to be done to the same bytes: CRC32 of them all, the compressor's own tool, AES in one piece.
Megabytes a second of binlog, CPU time of this process and its children; the median of five passes.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from replica.readers.files.binlog import open_binlog
from replica.readers.files.encryption import KeyRing
from tests.unit.readers.files.encrypting import encrypt_again, start_encryption
from tools.bench.kit.workloads import CACHE, WORKLOADS, binlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PASSES = 5
KEY, NONCE = bytes(range(16)), bytes(range(12))
KEYS = KeyRing({(1, 1): KEY})
TOOLS = {"gz": "gzip", "zst": "zstd", "xz": "xz"}
PIECE = 1 << 20


def read(path: Path, *, verify: bool = True) -> None:
    with open_binlog(path, KEYS) as file:
        for _ in file.ranges(verify=verify):
            pass


def read_piped(path: Path) -> None:
    saved = os.dup(0)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
        if cat.stdout is None:
            raise RuntimeError("cat has no output")
        os.dup2(cat.stdout.fileno(), 0)
        try:
            with open_binlog("-") as file:
                for _ in file.ranges():
                    pass
        finally:
            os.dup2(saved, 0)
            os.close(saved)


def checksum(path: Path) -> None:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            crc32(piece)


def cat(path: Path) -> None:
    subprocess.run(f"cat {path} | cat > /dev/null", shell=True, check=True)  # noqa: S602


def tool(path: Path) -> None:
    subprocess.run([TOOLS[path.suffix[1:]], "-dc", path], check=True, stdout=subprocess.DEVNULL)


def decrypt(path: Path) -> None:
    mode = modes.CBC(bytes(16)) if path.suffix == ".cbc" else modes.CTR(bytes(16))
    context = Cipher(algorithms.AES(KEY), mode).decryptor()
    target = bytearray(PIECE + 16)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            context.update_into(piece, target)


def variants(path: Path) -> dict[str, Path]:
    """The same file compressed and encrypted, made on the first call."""
    data = path.read_bytes()
    second = 4 + int.from_bytes(data[13:17], "little")
    makers: dict[str, Callable[[], bytes]] = {
        "gz": lambda: gzip.compress(data, 6),
        "zst": lambda: bytes(pa.Codec("zstd", 3).compress(data)),
        "xz": lambda: lzma.compress(data, preset=1),
        **{
            name: lambda name=name: encrypt_again(  # type: ignore[misc]
                data[:second] + start_encryption(1, NONCE, flags=0x80) + data[second:], KEY, 1, NONCE, name
            )
            for name in ("cbc", "ctr")
        },
    }
    found = {name: CACHE / f"{path.name}.{name}" for name in makers}
    for name, target in found.items():
        if not target.exists():
            target.write_bytes(makers[name]())
    return found


def cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def speed(run: Callable[[], None], size: int) -> float:
    run()  # compiles, and fills the page cache
    spent = []
    for _ in range(PASSES):
        before = cpu()
        run()
        spent.append(cpu() - before)
    return size / statistics.median(spent) / 1e6


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench files", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="narrow")
    parser.add_argument("--mb", type=int, default=100, help="size of the binlog in 10^6 bytes (default 100)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(argv)
    path = binlog(options.workload, options.mb)
    size, others = path.stat().st_size, variants(path)
    cases: list[tuple[str, Callable[[], None], str, Callable[[], None]]] = [
        ("plain, mapped", lambda: read(path), "CRC32 of the file", lambda: checksum(path)),
        ("without CRC32", lambda: read(path, verify=False), "", contextlib.nullcontext),
        ("plain, from a pipe", lambda: read_piped(path), "cat into a pipe", lambda: cat(path)),
        *((TOOLS[n], lambda n=n: read(others[n]), f"{TOOLS[n]} -dc", lambda n=n: tool(others[n])) for n in TOOLS),  # type: ignore[misc]
        *(
            (f"AES-{n.upper()}", lambda n=n: read(others[n]), "AES in one piece", lambda n=n: decrypt(others[n]))  # type: ignore[misc]
            for n in ("cbc", "ctr")
        ),
    ]
    result = {}
    print(f"{options.workload}: {size / 1e6:.0f} MB of binlog; MB a CPU second")
    for name, ours, other_name, other in cases:
        result[name] = {"ours": speed(ours, size)}
        line = f"{name:20}{result[name]['ours']:10,.0f}"
        if other_name:
            result[name][other_name] = speed(other, size)
            line += f"{result[name][other_name]:10,.0f}  {other_name}"
        print(line, flush=True)
    if options.json:
        print(json.dumps({"workload": options.workload, "bytes": size, "mb_per_cpu_second": result}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
