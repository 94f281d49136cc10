"""The finding of one check, and a list of findings about one subject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from replica.errors import ReplicaError

State = Literal["ok", "note", "warning", "missing"]

REPLICATE: Final = "replicate"
"""The purpose of most reports."""


class Result(NamedTuple):
    """One finding. `missing`: the replica cannot run or would lose changes. `warning`: it can, but not well. `note`:
    good to know.

    `check` names the setting or the subject and is stable; `what` and `fix` are for people, SQL first in `fix`.
    """

    check: str
    state: State
    what: str
    fix: str = ""


@dataclass(slots=True)
class Report:
    """All that was found out about a server, this machine, or the servers together; `error` is what it comes to."""

    subject: str
    results: list[Result] = field(default_factory=list)
    error: ReplicaError | None = None
    version: str | None = None
    account: str | None = None
    tables: list[dict[str, object]] | None = None
    """Each table of a report on tables, for programs."""
    purpose: str = REPLICATE
    """The word for what the subject is ready for, or not: one verdict for each."""

    @property
    def missing(self) -> list[Result]:
        return [result for result in self.results if result.state == "missing"]
