"""Record where sequence numbers went back in a relay log, because a GTID position is then ambiguous (`ambiguous`).

`relay.order` is a small JSON file beside the relay log that exists only if numbers went back. It holds the highest
number of each such domain before its numbers went back, and the place at which the log began. It is on disk before the
published head shows such a group to readers. If the file is lost, recovery computes it again from the marked files that
still exist.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import RelayError
from replica.protocol.gtid import BinlogPosition
from replica.relay_log.directory.disk import replace_file, sync_directory

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import Highest

ORDER_NAME: Final = "relay.order"
VERSION: Final = 1
MAX_BYTES: Final = 256 << 10
"""Maximum size of the file. 4096 domains (domains.MAX_DOMAINS) take about 30 bytes each."""


class Begun(NamedTuple):
    """The first group of the log, in relay file `number`, is the one after `place` on the primary."""

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
