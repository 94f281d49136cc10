"""The check that the next batch continues what the control table says of the targets.

In: the rows of the control table, the number of the batch that comes, and where it ends. Out: whether the batch is
there already. Refused: a checkpoint that is older or newer than the targets, as a copy that was restored is; a control
table that another run writes, from a copy of the checkpoint. Spark repeats its last batch at most, so that a batch is
the one that the targets are at, or the one behind it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from streaming_source.mirroring.control.control_row import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.offsets.offset import SourceOffset

LOOK_EVERY_S: Final = 60.0
"""How often a mirror looks whether it is alone: a look reads the control table, which costs a part of a small batch."""
_HINT = (
    "Put back the checkpoint, the control table and the targets of one moment. Where that cannot be, drop the control "
    "table and the targets, and start the mirror with a new checkpoint."
)


def is_there(rows: Collection[ControlRow], number: int, end: SourceOffset, checkpoint: str) -> bool:
    """Tell whether the targets have a batch already.

    Raises:
        ConfigError: batches are missing between the targets and the checkpoint, or it would bring them in once more.
    """
    if not rows:
        return False
    newest = max(rows, key=lambda row: row.batch)
    last = newest.batch
    live = [row for row in rows if row.live]
    another = last == number and any(row.position != str(end.position) for row in live)
    if number < last or another:
        raise ConfigError(
            f"the checkpoint {checkpoint} is older than the targets: it comes to batch {number} ({end.position}), and "
            f"they are at batch {last} ({newest.position}). Changes that they do not have would be taken for changes "
            "that they have.",
            hint=_HINT,
        )
    if live and number > last + 1:
        raise ConfigError(
            f"the targets are older than the checkpoint {checkpoint}: they are at batch {last}, and it comes to batch "
            f"{number}. The changes between them would be missing.",
            hint=_HINT,
        )
    return last == number


class FencingCheck:
    """The look, now and then, whether the control table is still what this run wrote."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        """Tell whether it is time to look again, and take it for looked."""
        now = time.monotonic()
        if now - self._last < LOOK_EVERY_S:
            return False
        self._last = now
        return True


def check_alone(ours: Collection[ControlRow], there: Collection[ControlRow], control: str) -> None:
    """Refuse to go on where another run of the mirror writes too.

    Raises:
        ConfigError: the control table is not what this run wrote.
    """
    if _places(ours) != _places(there):
        raise ConfigError(
            f"another run of this mirror writes {control} and the targets, from a copy of the checkpoint it may be: "
            f"it is at batch {_batch(there)}, and this run wrote batch {_batch(ours)}.",
            hint="End the other one. The targets may lack changes now: drop the control table and the targets, and "
            "start one mirror with a new checkpoint.",
        )


def _places(rows: Collection[ControlRow]) -> set[tuple[object, ...]]:
    return {(row.name, row.batch, row.position) for row in rows}


def _batch(rows: Collection[ControlRow]) -> int:
    return max((row.batch for row in rows), default=NO_BATCH)
