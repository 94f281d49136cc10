"""Compile the decoder's kernels now, so that no query waits for them: `python -m replica.rows.warm`.

Compiling takes some seconds once per machine and version; afterwards a process loads each kernel from the cache in
hundredths of a second. Without a writable cache folder it serves this process and those forked from it.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from replica.rows.kernel_scan import scan_range
from replica.rows.kernel_typed import decode_typed
from replica.rows.kernel_variant import decode_variant
from replica.rows.kernel_walk import count_images

# Every kernel takes nothing but addresses and counts, so each has one signature.
KERNELS: Final[tuple[tuple[Any, int], ...]] = (
    (scan_range, 13),
    (decode_typed, 12),
    (decode_variant, 12),
    (count_images, 7),
)


def warm_kernels() -> None:
    """Compile, or load from the cache, every kernel that decoding a range calls."""
    for kernel, arguments in KERNELS:
        kernel.compile((types.int64,) * arguments)


if __name__ == "__main__":
    warm_kernels()
