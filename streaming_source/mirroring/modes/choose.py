"""Lookup of a mode by its name, for tables with and without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.modes.append_log import AppendLog
from streaming_source.mirroring.modes.current import CountedRows, CurrentRows
from streaming_source.mirroring.modes.history import History
from streaming_source.mirroring.modes.soft_delete import SoftDelete
from streaming_source.schema.target_modes import APPEND_LOG, CURRENT, HISTORY, SOFT_DELETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_source.mirroring.modes.mode import Mode

_MODES: Final[dict[str, Mode]] = {
    CURRENT: CurrentRows(),
    SOFT_DELETE: SoftDelete(),
    HISTORY: History(),
    APPEND_LOG: AppendLog(),
}
_COUNTED: Final = CountedRows()


def mode_of(name: str, keys: Sequence[str]) -> Mode:
    """Return the mode that a control row or a rule names.

    Args:
        name: the name of the mode.
        keys: the key columns of the table; empty for a table without a key.
    """
    return _COUNTED if name == CURRENT and not keys else _MODES[name]
