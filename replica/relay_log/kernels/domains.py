"""Maximum number of GTID domains in a relay log, in its own module so that readers of a head need no compiler."""

from __future__ import annotations

from typing import Final

MAX_DOMAINS: Final = 4096  # the state and every index entry have a row per domain, 64 KB in all
