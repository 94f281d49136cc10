"""`explain` on a primary: a temporary replica that starts right before the transaction and stops after it.

The other domains start at their ends, so that the primary sends little. The primary's positions explain a missing
transaction.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import DisconnectedError, PositionLostError
from replica.explain.found import Answer
from replica.explain.in_relay_log import explain_relay
from replica.live.embedded import EmbeddedReplica
from replica.primary_reader.own_log import own_log
from replica.protocol.gtid import Gtid, GtidPosition

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from replica.options.config import ReplicaConfig

WAIT_S: Final = 60.0
"""Maximum wait in seconds. The primary searches a file of 1 GB for seconds, and a transaction of some GB takes as long
to arrive.
"""


def explain_primary(config: ReplicaConfig, gtid: Gtid, log: FilteringBoundLogger) -> Answer:
    """Return all about the transaction.

    Raises:
        ReplicaError: the primary cannot be reached, or does not let us replicate.
        DisconnectedError: the primary did not send the transaction within WAIT_S.
    """
    where = ", ".join(map(str, config.endpoints))
    with (
        tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder,
        contextlib.closing(EmbeddedReplica(config, Path(folder), log=log)) as asking,
    ):
        latest, first = asking.server_position(), asking.earliest_position()
    answer = Answer(gtid, where)
    ends, begins = latest.get(gtid.domain_id), first.get(gtid.domain_id)
    if ends is None:
        answer.reason, answer.words = "domain", f"{where} has no domain {gtid.domain_id}; it is at {latest}."
    elif gtid.seq_no > ends.seq_no:
        answer.reason, answer.words = "not yet", f"Not yet: {where} is at {ends}."
    elif begins is not None and gtid.seq_no <= begins.seq_no:
        answer.reason, answer.words = "purged", f"Purged: the binlogs of {where} begin after {begins}."
    if answer.reason is not None:
        return answer
    before = [known for known in latest if known.domain_id != gtid.domain_id]
    if gtid.seq_no > 1:
        before.append(gtid._replace(seq_no=gtid.seq_no - 1))
    try:
        return _fetch(config, GtidPosition(tuple(before)), gtid, log, where)
    except PositionLostError as error:
        answer.reason = "other server"
        answer.words = f"{where} has no transaction of server {gtid.server_id} there. It says: {error.message}"
        return answer


def _fetch(config: ReplicaConfig, start: GtidPosition, gtid: Gtid, log: FilteringBoundLogger, where: str) -> Answer:
    with own_log(config, start, log, gtid_strict_mode=False) as own:
        replica = own.replica
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            head = replica.head()
            reached = head.position.get(gtid.domain_id)
            if head.location.offset and reached is not None and reached.seq_no >= gtid.seq_no:
                answer = explain_relay(own.log, gtid, None)
                _without_our_file(answer, where)
                return answer
            replica.wait_beyond(head.location, deadline - time.monotonic())
    raise DisconnectedError(
        f"{where} did not send {gtid} within {WAIT_S:.0f} s.", hint="Its network is slow, or the transaction is huge."
    )


def _without_our_file(answer: Answer, where: str) -> None:
    """Remove the facts about the temporary log. Offsets of events then count from the transaction's start."""
    if answer.transaction is not None:
        events = answer.transaction.events
        answer.transaction.events = [one._replace(offset=one.offset - answer.offset) for one in events]
    answer.where, answer.file, answer.offset, answer.on_disk = where, "", 0, None
