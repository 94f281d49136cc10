"""The mode of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.modes.append_log import AppendLog
from streaming_source.mirroring.modes.current import CurrentRows
from streaming_source.mirroring.modes.history import History
from streaming_source.mirroring.modes.soft_delete import SoftDelete
from streaming_source.schema.target_modes import APPEND_LOG, CURRENT, HISTORY, SOFT_DELETE

if TYPE_CHECKING:
    from streaming_source.mirroring.modes.mode import Mode

_MODES: Final[dict[str, Mode]] = {
    CURRENT: CurrentRows(),
    SOFT_DELETE: SoftDelete(),
    HISTORY: History(),
    APPEND_LOG: AppendLog(),
}


def mode_of(name: str) -> Mode:
    """Return the mode that a control row or a rule names."""
    return _MODES[name]
