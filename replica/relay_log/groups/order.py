"""Record of where sequence numbers went back in a relay log, which makes GTID positions ambiguous (`ambiguous`).

`relay.order` is a small JSON file beside the relay log that exists only if numbers went back. It holds the highest
number of each such domain before its numbers went back, and the place at which the log began. It is on disk before the
published head shows such a group to readers. If the file is lost, recovery computes it again from the marked files that
still exist.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.errors import AmbiguousPositionError, OutOfOrderGtidError, RelayError
from replica.protocol.gtid import BinlogPosition
from replica.relay_log.directory.disk import replace_file, sync_directory
from replica.relay_log.files.scan import end_gtids, head_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from replica.native.record import Records
    from replica.protocol.gtid import Gtid, GtidPosition, Highest
    from replica.relay_log.groups.groups import LogGroup, RelayGroups
    from replica.relay_log.location import RelayHead, RelayLocation

ORDER_NAME: Final = "relay.order"
VERSION: Final = 1
MAX_BYTES: Final = 256 << 10
"""Maximum size of the file. 4096 domains (domains.MAX_DOMAINS) take about 30 bytes each."""


class Begun(NamedTuple):
    """Start of the log: the first group, in relay file `number`, is the group after `place` on the primary."""

    number: int
    place: BinlogPosition


class LogOrder(NamedTuple):
    """Content of `relay.order`; empty for a log whose numbers only grow."""

    highest: Highest
    begun: Begun | None = None


IN_ORDER: Final = LogOrder({})


def read_order(directory: Path) -> LogOrder:
    """Read the record of a log.

    Raises:
        RelayError: The file cannot be read, or is malformed.
    """
    path = directory / ORDER_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return IN_ORDER
    except OSError as error:
        raise RelayError(f"{path} cannot be read: {error.strerror or error}.", hint="Check its permissions.") from None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    try:
        return _parsed(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RelayError(
            f"{path} does not record where sequence numbers went back, or was written by a newer version of this "
            "program.",
            hint="Remove it while no replica runs: the next start makes it from the relay files that are still there.",
        ) from None


def write_order(directory: Path, order: LogOrder) -> None:
    """Replace the file durably, or remove it if there is nothing to record. OSErrors are passed on."""
    path = directory / ORDER_NAME
    if not order.highest and order.begun is None:
        path.unlink(missing_ok=True)
        return
    begun = order.begun
    value = {
        "version": VERSION,
        "highest": {str(domain): number for domain, number in sorted(order.highest.items())},
        "begun": None if begun is None else {"relay": begun.number, **begun.place._asdict()},
    }
    replace_file(path, f"{json.dumps(value)}\n".encode())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(directory)


def _parsed(found: dict[str, Any]) -> LogOrder:
    if found["version"] != VERSION:
        raise ValueError(found["version"])
    begun = found["begun"]
    highest = {int(domain): int(number) for domain, number in found["highest"].items()}
    if begun is None:
        return LogOrder(highest)
    return LogOrder(highest, Begun(int(begun["relay"]), BinlogPosition(str(begun["file"]), int(begun["position"]))))


# Only files whose index is marked contain numbers that went back. In these files group ends are read and nothing is
# decoded.


PLACES_NAMED = 3
"""Maximum number of places that a message names."""

GO_ON = (
    "To continue after it, set gtid_strict_mode=false (gtidStrictMode=false in Spark). Every transaction is then "
    "read once, in the order of the binlog. A restart continues at its place in this server's binlog; another "
    "server cannot take over until the numbers have passed the highest. SET GLOBAL gtid_strict_mode=ON on the "
    "server keeps such numbers out."
)


def out_of_order(gtid: Gtid, last: Gtid, where: str) -> OutOfOrderGtidError:
    """Return the error that ends a read directly before a group; `where` describes the group's place."""
    return OutOfOrderGtidError(
        f"the transaction {gtid} {where} comes after {last}, but its sequence number is not above the last one "
        f"of domain {gtid.domain_id}. Nothing of it was accepted.",
        hint=GO_ON,
    )


def places_of(groups: RelayGroups, position: GtidPosition) -> Iterator[RelayHead]:
    """Yield each location at which exactly `position` is reached, in order; the start of the log may be one."""
    numbers = groups.files.numbers()
    for number in numbers:
        first = groups.files.base(number, None)
        if number == numbers.start and first.position == position:
            yield first
        for base, ends in groups.stretches(number, 0):
            for row in np.flatnonzero(_named(ends, position)).tolist():
                found = head_at(base, ends, row)
                if found.position == position:
                    yield found


def refuse_repeated(groups: RelayGroups, gtid: Gtid) -> None:
    """Raise an error if a GTID names several transactions.

    Raises:
        AmbiguousPositionError: The log contains more than one transaction with the GTID.
    """
    places = [
        head_at(base, ends, int(row)).primary
        for number in groups.files.numbers()
        for base, ends in groups.stretches(number, 0)
        for row in np.flatnonzero(_named(ends, (gtid,)))
        if end_gtids(ends[row : row + 1]) == [gtid]
    ]
    if len(places) > 1:
        raise AmbiguousPositionError(
            f"the relay log holds {len(places)} transactions {gtid}, because sequence numbers went back: they end at "
            f"{', '.join(map(str, places[:PLACES_NAMED]))} of the primary's binlog.",
            hint="Name another one, or look at that part of the binlog with dump --start-position.",
        )


def first_out_of_order(groups: RelayGroups, start: RelayLocation, end: RelayLocation) -> tuple[LogGroup, Gtid] | None:
    """Return the first group between two group ends whose number is not above the previous one of its domain.

    The second value is that previous GTID.
    """
    numbers = groups.files.numbers()
    for number in range(max(start.file, numbers.start), min(end.file + 1, numbers.stop)):
        entries = groups.files.index(number).entries
        marked = next((at for at, entry in enumerate(entries) if entry.unordered), len(entries))
        if marked == len(entries) and entries and entries[-1].sealed:
            continue
        begin = entries[marked - 1].end if marked else 0
        if number == start.file:
            begin = max(begin, start.offset)
        for base, ends in groups.stretches(number, begin):
            last = {gtid.domain_id: gtid for gtid in base.position}
            for row, gtid in enumerate(end_gtids(ends)):
                offset = int(ends[row]["offset"])
                if number == end.file and offset > end.offset:
                    return None
                before, last[gtid.domain_id] = last.get(gtid.domain_id), gtid
                if offset > begin and before is not None and gtid.seq_no <= before.seq_no:
                    return groups.group(base, ends, row), before
    return None


def _named(ends: Records, position: Iterable[Gtid]) -> NDArray[np.bool_]:
    """Return a mask of the rows whose group is one of the position's."""
    named = np.zeros(len(ends), np.bool_)
    sequence = ends["sequence"].view(np.uint64)
    for gtid in position:
        named |= (ends["domain"] == gtid.domain_id) & (sequence == np.uint64(gtid.seq_no))
    return named
