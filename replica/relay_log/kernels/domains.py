"""The number of GTID domains that a relay log has room for, apart from kernels: readers of a head need no compiler."""

from __future__ import annotations

from typing import Final

MAX_DOMAINS: Final = 4096  # one row each in the state and in every index entry: 64 KB
