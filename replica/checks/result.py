"""Finding of one check, and the report that lists the findings about one subject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from replica.errors import ReplicaError

State = Literal["ok", "note", "warning", "missing"]

REPLICATE: Final = "replicate"
"""Purpose of most reports."""


class Result(NamedTuple):
    """One finding.

    `missing`: the replica cannot run or would lose changes. `warning`: it can run, but not well. `note`: information.
    `check` is the stable name of the setting or subject. `what` and `fix` are for people, with SQL first in `fix`.
    """

    check: str
    state: State
    what: str
    fix: str = ""


@dataclass(slots=True)
class Report:
    """Findings about a server, this machine, or the servers together. `error` is the error that follows from them."""

    subject: str
    results: list[Result] = field(default_factory=list)
    error: ReplicaError | None = None
    version: str | None = None
    account: str | None = None
    tables: list[dict[str, object]] | None = None
    """Each table of a report on tables, for programs."""
    purpose: str = REPLICATE
    """Purpose for which the subject is ready or not. Each purpose has one verdict."""

    @property
    def missing(self) -> list[Result]:
        return [result for result in self.results if result.state == "missing"]
