"""Handling of purged transactions that a query needs next: the option failOnDataLoss.

`explained` adds the possible remedies to an error. `go_on_after` returns the position to continue from, and the skipped
transactions as a `Loss`, which is logged and shown in the query's progress. Only purged transactions can be skipped. A
server that was reset, has diverged or is another server has another history, and nothing shows which of its rows the
query has read. So such a server stays an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import AmbiguousPositionError, PositionLostError, PositionPurgedError
from replica.protocol.gtid import Gtid, GtidPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

LOSSES_SHOWN: Final = 10
"""Most losses of a query to show. If there are more, the last ones are shown."""

_MIRROR: Final = (
    "A mirror has neither option: drop its control table and its targets, and name a new checkpoint. It then starts "
    "with a snapshot of the tables."
)
_GO_ON = (
    "failOnDataLoss=false continues at the oldest transaction that is left, without those between. To miss nothing, "
    "start a new checkpoint with startingPosition=initial, which reads the tables first. Or copy the tables again, "
    f"and start at the copy's position. {_MIRROR}"
)
_ANOTHER = (
    "Connect to the server that the checkpoint comes from. If that server no longer exists, start a new checkpoint "
    "with startingPosition=initial, which reads the tables first. Or copy the tables again, and start at the copy's "
    "position. failOnDataLoss=false does not help, because it is unknown which rows of this history were read "
    f"already. {_MIRROR}"
)

_GIVEN = (
    "Set startingPosition to a position of this server. SELECT @@gtid_binlog_pos shows its newest position, "
    "mariadb-replica position finds the position of a time or of a file and offset."
)
PREPARED_HINT: Final = (
    "failOnDataLoss=false continues without the rows of such XA transactions if they are committed. All other rows "
    "arrive."
)

_log = logging.getLogger(__name__)


class Loss(NamedTuple):
    """Purged transactions: in each domain the transactions after `after`, up to and including `up_to`.

    A domain that `after` does not have has lost everything up to `up_to`.

    Attributes:
        prepared_only: whether only rows of XA transactions are lost, which were prepared between the two positions and
            had not ended at `up_to`.
    """

    after: GtidPosition
    up_to: GtidPosition
    prepared_only: bool = False

    def __str__(self) -> str:
        parts = []
        for gtid in self.up_to:
            last = self.after.get(gtid.domain_id)
            parts.append(f"after {last} up to {gtid}" if last else f"of domain {gtid.domain_id} up to {gtid}")
        return f"{'prepared ' if self.prepared_only else ''}{', '.join(parts)}"

    def json(self) -> dict[str, Any]:
        loss: dict[str, Any] = {"after": str(self.after), "upTo": str(self.up_to)}
        return {**loss, "preparedOnly": True} if self.prepared_only else loss


def explained(error: PositionLostError, *, given: bool = False, where: str = "") -> PositionLostError:
    """Return the error with the remedies that a query has.

    Args:
        error: the server's error.
        given: the position is the option startingPosition.
        where: what the query's relay log lacks; it comes before the server's message.
    """
    if isinstance(error, AmbiguousPositionError):
        return error
    hint = _GO_ON if isinstance(error, PositionPurgedError) else _GIVEN if given else _ANOTHER
    return type(error)(where + error.message, code=error.code, sqlstate=error.sqlstate, hint=hint)


def prepared_lost(error: PositionLostError, resume: GtidPosition, position: GtidPosition) -> PositionLostError:
    """Return the error for a position that the server has, although it lacks rows of earlier prepared transactions."""
    message = prepared_message(error.message, resume, position)
    return type(error)(message, code=error.code, sqlstate=error.sqlstate, hint=PREPARED_HINT)


def prepared_message(cause: str, resume: GtidPosition, position: GtidPosition) -> str:
    return (
        f"the transactions after {position} are available, but those between {resume or 'the beginning'} and "
        f"{position} were removed. At least one of them is an XA transaction that was prepared and had not ended: its "
        f"rows are lost. ({cause})"
    )


def go_on_after(position: GtidPosition, oldest: GtidPosition) -> tuple[GtidPosition, Loss | None]:
    """Return where a reader at `position` continues in a log that begins at `oldest`, and its loss, if there is one."""
    ahead = [gtid for gtid in oldest if _before(position.get(gtid.domain_id), gtid)]
    if not ahead:
        return position, None
    domains = {gtid.domain_id for gtid in ahead}
    kept = [gtid for gtid in position if gtid.domain_id not in domains]
    loss = Loss(GtidPosition(tuple(g for g in position if g.domain_id in domains)), GtidPosition(tuple(ahead)))
    return GtidPosition((*kept, *ahead)), loss


def _before(mine: Gtid | None, oldest: Gtid) -> bool:
    return mine is None or mine.seq_no < oldest.seq_no


class Losses:
    """Losses of a query since its start."""

    def __init__(self) -> None:
        self._all: list[Loss] = []

    def add(self, loss: Loss) -> None:
        _log.error("data loss: transactions %s were removed before this query read them; the query continues", loss)
        self._all = [*(one for one in self._all if one != loss), loss][-LOSSES_SHOWN:]

    def __bool__(self) -> bool:
        return bool(self._all)

    def json(self) -> Sequence[dict[str, Any]]:
        return [loss.json() for loss in self._all]
