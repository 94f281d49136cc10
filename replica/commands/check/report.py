"""Findings of the checks, and the report that prints them.

In: `Result`s, collected in one `Report` for each server, for the servers together, and for this machine. Out: lines of
text, with one verdict for each purpose. Colours only repeat what the text says, so that nothing is lost without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click

from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


_MARKS: dict[State, tuple[str, str, str, str]] = {
    "ok": ("✓", "+", "ok", "green"),
    "note": ("·", ".", "note", "cyan"),
    "warning": ("!", "!", "warning", "yellow"),
    "missing": ("✗", "x", "MISSING", "red"),
}
_NAME_WIDTH = 20
_WIDEST_NAME = 44
"""Maximum width of names in columns. Longer ones break the alignment of the texts."""


def lines(reports: Iterable[Report], *, encoding: str) -> Iterator[str]:
    """Yield the lines of the reports, with colours as escape sequences.

    The lines of a report are complete before the next report is requested. If `encoding` lacks the marks of findings,
    ASCII marks are used.
    """
    plain = not _can_encode(encoding)
    shown: list[Report] = []
    for report in reports:
        shown.append(report)
        yield click.style(one_line(_title(report)), bold=True)
        width = max(
            [_NAME_WIDTH, *(len(result.check) for result in report.results if len(result.check) <= _WIDEST_NAME)]
        )
        for result in _in_order(report):
            yield from _result(result, width, plain=plain)
        yield f"  {_conclusion(report)}"
        yield ""
    if any("SET GLOBAL" in result.fix for report in shown for result in report.results):
        yield "SET GLOBAL holds until the server restarts: put the same into its configuration file, under [mariadb]."
    yield _verdict(shown)


def _in_order(report: Report) -> list[Result]:
    """Return the results with missing prerequisites first. Tables keep their order."""
    return report.results if report.tables is not None else sorted(report.results, key=_is_fine)


def _is_fine(result: Result) -> bool:
    return result.state != "missing"


def _title(report: Report) -> str:
    who = f"  as {report.account}" if report.account else ""
    return f"{report.subject}  {report.version}{who}" if report.version else report.subject


def _result(result: Result, width: int, *, plain: bool) -> Iterator[str]:
    mark, ascii_mark, label, colour = _MARKS[result.state]
    styled = click.style(f"{ascii_mark if plain else mark} {label:<8}", fg=colour)
    yield f"  {styled} {one_line(result.check):<{width}} {one_line(result.what)}"
    if result.fix:
        yield f"  {'':<10} {'':<{width}} fix: {one_line(result.fix)}"


def _conclusion(report: Report) -> str:
    warnings = sum(result.state == "warning" for result in report.results)
    shown = "no warning" if not warnings else f"{warnings} warning{'s' if warnings > 1 else ''}"
    if report.error is None:
        return click.style("ready", fg="green") + f" ({shown})"
    if report.missing and report.tables is not None:
        refused = len({result.check for result in report.missing})
        return click.style(f"{refused} failed", fg="red") + f" ({shown})"
    if report.missing:
        return click.style(f"{len(report.missing)} missing", fg="red") + f" ({shown})"
    return click.style("FAILED", fg="red") + f" {one_line(str(report.error))}"


def _verdict(reports: Sequence[Report]) -> str:
    purposes = dict.fromkeys([REPLICATE, *(report.purpose for report in reports)])
    return "; ".join(_ready([report for report in reports if report.purpose == one], one) for one in purposes)


def _ready(reports: Sequence[Report], purpose: str) -> str:
    failed = _failed(reports)
    return f"NOT ready to {purpose} ({failed})" if failed else f"ready to {purpose}"


def _failed(reports: Sequence[Report]) -> str:
    return ", ".join(f"{one.subject}: exit code {one.error.exit_code}" for one in reports if one.error is not None)


def _can_encode(encoding: str) -> bool:
    try:
        "".join(mark for mark, *_ in _MARKS.values()).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True
