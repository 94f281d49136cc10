"""The choice where the transactions that a query needs next were removed: the option failOnDataLoss.

In: the error, or the position asked for and the oldest there is. Out: the same error with the ways out of it, or the
position to go on from, and what lies between as a `Loss`: logged, and shown in the query's progress. Only what was
removed can be gone over. A server that was reset, has diverged or is another one has another history: nothing tells
which of its rows were read already, so that stays an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import AmbiguousPositionError, PositionLostError, PositionPurgedError
from replica.protocol.gtid import Gtid, GtidPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

LOSSES_SHOWN: Final = 10
"""The losses of a query's life that are shown; one that loses more often shows the last ones."""

_MIRROR: Final = (
    "A mirror takes neither option: drop its control table and its targets, and name a new checkpoint; it begins with "
    "the tables by itself."
)
_GO_ON = (
    "failOnDataLoss=false goes on at the oldest transaction there is, without those between. To miss nothing, start a "
    "new checkpoint: with startingPosition=initial, which reads the tables first; or copy the tables again, and start "
    f"at the copy's position. {_MIRROR}"
)
_ANOTHER = (
    "Connect to the server that the checkpoint comes from. If there is none any more, start a new checkpoint: with "
    "startingPosition=initial, which reads the tables first; or copy the tables again, and start at the copy's "
    "position. failOnDataLoss=false does not help, because no one can tell which rows of this history were read "
    f"already. {_MIRROR}"
)

_GIVEN = (
    "startingPosition has to be a position of this very server: SELECT @@gtid_binlog_pos tells its newest, "
    "mariadb-replica position that of a time or of a file and offset."
)
PREPARED_HINT: Final = (
    "failOnDataLoss=false goes on without the rows of such XA transactions, should they be committed; everything else "
    "arrives."
)

_log = logging.getLogger(__name__)


class Loss(NamedTuple):
    """Transactions that are in no log any more: in each domain those behind `after`, up to and with `up_to`.

    A domain that `after` does not name has lost everything up to `up_to`. `prepared_only`: nothing of them but the rows
    of XA transactions that were prepared there and had not ended at `up_to`.
    """

    after: GtidPosition
    up_to: GtidPosition
    prepared_only: bool = False

    def __str__(self) -> str:
        parts = []
        for gtid in self.up_to:
            last = self.after.get(gtid.domain_id)
            parts.append(f"behind {last} up to {gtid}" if last else f"of domain {gtid.domain_id} up to {gtid}")
        return f"{'prepared ' if self.prepared_only else ''}{', '.join(parts)}"

    def json(self) -> dict[str, Any]:
        loss: dict[str, Any] = {"after": str(self.after), "upTo": str(self.up_to)}
        return {**loss, "preparedOnly": True} if self.prepared_only else loss


def explained(error: PositionLostError, *, given: bool = False, where: str = "") -> PositionLostError:
    """Return the error with the ways out of it that a query has. `given`: the position is the option
    startingPosition; `where`: what its relay log has of it, before what the server says.
    """
    if isinstance(error, AmbiguousPositionError):
        return error
    hint = _GO_ON if isinstance(error, PositionPurgedError) else _GIVEN if given else _ANOTHER
    return type(error)(where + error.message, code=error.code, sqlstate=error.sqlstate, hint=hint)


def prepared_lost(error: PositionLostError, resume: GtidPosition, position: GtidPosition) -> PositionLostError:
    """Return the error for a position that is there while the rows of transactions prepared before it are not."""
    message = prepared_message(error.message, resume, position)
    return type(error)(message, code=error.code, sqlstate=error.sqlstate, hint=PREPARED_HINT)


def prepared_message(cause: str, resume: GtidPosition, position: GtidPosition) -> str:
    return (
        f"the transactions behind {position} are all there, but those between {resume or 'the beginning'} and "
        f"{position} were removed, and among them is at least one XA transaction that was prepared and had not ended: "
        f"its rows are lost. ({cause})"
    )


def go_on_after(position: GtidPosition, oldest: GtidPosition) -> tuple[GtidPosition, Loss | None]:
    """Return where a reader at `position` goes on in a log that begins at `oldest`, and what it misses; None for
    nothing.
    """
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
    """All that a query has lost since it was started."""

    def __init__(self) -> None:
        self._all: list[Loss] = []

    def add(self, loss: Loss) -> None:
        _log.error("data loss: transactions %s were removed before this query read them; it goes on", loss)
        self._all = [*(one for one in self._all if one != loss), loss][-LOSSES_SHOWN:]

    def __bool__(self) -> bool:
        return bool(self._all)

    def json(self) -> Sequence[dict[str, Any]]:
        return [loss.json() for loss in self._all]
