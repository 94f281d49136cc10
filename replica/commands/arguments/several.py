"""Answer of `status` about several daemons: one line each, and one exit code for all.

In: for each folder the verdict, or the error in its place. Out: lines, or the parts of one JSON object. The exit code
is that of the worst daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from replica.daemon.status.verdict import BEHIND, HEALTHY, NO_ROOM, NOT_CONNECTED, NOT_RUNNING, SILENT
from replica.daemon.status.words import span
from replica.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from replica.daemon.status.record import StatusRecord
    from replica.daemon.status.verdict import Verdict
    from replica.errors import ReplicaError

WORST_FIRST: Final = (NOT_RUNNING, SILENT, NO_ROOM, NOT_CONNECTED, BEHIND, HEALTHY)
"""Exit codes of `status` by urgency. The code of an error comes before all of them."""


class Looked(NamedTuple):
    """Folder of one daemon, and the verdict or error that was found there."""

    folder: Path
    record: StatusRecord | None
    found: Verdict | ReplicaError

    @property
    def exit_code(self) -> int:
        return self.found.exit_code


def ordered(daemons: Sequence[Looked]) -> list[Looked]:
    """Return the daemons, the worst first."""
    ranks = {code: rank for rank, code in enumerate(WORST_FIRST)}
    return sorted(daemons, key=lambda one: ranks.get(one.exit_code, -1))


def lines(daemons: Sequence[Looked]) -> Iterator[str]:
    """Yield a line for each daemon, in the given order, and a line with the number of healthy ones."""
    width = max(len(str(one.folder)) for one in daemons)
    clusters = [one.record.cluster if one.record else "" for one in daemons]
    column = max(map(len, clusters))
    for one, cluster in zip(daemons, clusters, strict=True):
        colour = "green" if one.exit_code == HEALTHY else "yellow" if one.exit_code >= NOT_CONNECTED else "red"
        name = f"{one_line(cluster):<{column}}  " if column else ""
        yield f"{one_line(str(one.folder)):<{width}}  {name}{click.style(_word(one), fg=colour)}{one_line(_rest(one))}"
    healthy = sum(one.exit_code == HEALTHY for one in daemons)
    yield f"{healthy} of {len(daemons)} healthy"


def _word(one: Looked) -> str:
    return getattr(one.found, "word", type(one.found).__name__)


def _rest(one: Looked) -> str:
    reason = getattr(one.found, "reason", None)
    if reason is None:
        return f": {one.found}"
    if reason:
        return f": {reason}"
    behind = None if one.record is None else one.record.behind.seconds
    return "" if behind is None else f", {span(behind)} behind"
