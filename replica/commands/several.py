"""The answer of `status` about several daemons: a line each, the ones to look at first, and one exit code for all.

In: for each folder the verdict, or the error that kept it from being looked at. Out: lines, or the parts of one JSON
object. The exit code is that of the daemon that stands worst.
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
"""Codes of `status` by how soon someone has to come; the code of an error stands before all of them."""


class Looked(NamedTuple):
    """One daemon's folder, and what was found there: a verdict, or the error in its place."""

    folder: Path
    record: StatusRecord | None
    found: Verdict | ReplicaError

    @property
    def exit_code(self) -> int:
        return self.found.exit_code


def ordered(daemons: Sequence[Looked]) -> list[Looked]:
    """Return them, the worst first."""
    ranks = {code: rank for rank, code in enumerate(WORST_FIRST)}
    return sorted(daemons, key=lambda one: ranks.get(one.exit_code, -1))


def lines(daemons: Sequence[Looked]) -> Iterator[str]:
    """Yield a line for each daemon, in the order given, and the sum."""
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
