"""The GTIDs that may name more than one place of a binlog, because sequence numbers went back there.

A server without gtid_strict_mode takes any number that a session sets (SET gtid_seq_no, every replay of
mariadb-binlog): behind 0-1-9 may stand 0-1-2. Then 0-1-2 names two places of its binlog, and so do 0-1-3 to 0-1-9, for
they may come once more: a server that is asked for one of them sends from the first, or from whichever of its files it
happens to look into first. With 0-1-10 this ends: that is above every number there was, and names one place again. So a
position is **ambiguous** as long as it names, in any domain, a number up to the highest one behind which that domain
went back. mariadbd's own rule counts, whatever the server ids: what is not above the last number of its domain went
back.

Such a position is told apart by its place: a file of the primary's binlog and an offset in it, on that server alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replica.protocol.gtid import Gtid

Highest = Mapping[int, int]
"""Domain -> the highest sequence number behind which its numbers went back."""


def ambiguous(position: Iterable[Gtid], highest: Highest) -> tuple[Gtid, ...]:
    """Return the GTIDs of a position that may name more than one place."""
    return tuple(gtid for gtid in position if gtid.seq_no <= highest.get(gtid.domain_id, -1))


def of_position(position: Iterable[Gtid], highest: Highest) -> dict[int, int]:
    """Return the part of `highest` that matters to a position: none for one that names a single place."""
    return {gtid.domain_id: highest[gtid.domain_id] for gtid in ambiguous(position, highest)}


def merged(one: Highest, other: Highest) -> dict[int, int]:
    """Keep the higher number of each domain."""
    return {domain: max(one.get(domain, 0), other.get(domain, 0)) for domain in sorted({*one, *other})}
