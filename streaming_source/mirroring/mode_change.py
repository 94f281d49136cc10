"""A mode that is another one than that of the target: refused before the mirror starts.

In: the rows of the control table, and the settings. A target holds what its mode kept since it was made; what another
mode would have kept is not known any more. A table that is read again may have another mode, and begins with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import matcher, table_text
from streaming_source.mirroring.control_row import DROPPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_source.mirroring.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings


def check_modes(rows: Iterable[ControlRow], settings: MirrorSettings) -> None:
    """Refuse a mode that differs from the target's, unless the table is to be read again.

    Raises:
        ConfigError: there is such a table.
    """
    again = settings.options.snapshot_again
    for row in rows:
        wanted = settings.rule_of(row.name).mode
        table = table_text(row.name)
        anew = again is not None and again.word != row.again and matcher(again.patterns).fits(row.name)
        if row.mode != wanted and row.state != DROPPED and not anew:
            raise ConfigError(
                f"{row.target} holds {table} in the mode {row.mode}, and its rule says {wanted}.",
                hint=f"Give it the mode {row.mode}, or begin its target again in the other mode, which removes what it "
                f"holds: start the mirror with snapshotAgain={table}@WORD, with a new word.",
            )
