"""Check of the tables that a query reads first (`startingPosition=initial`), with one finding for each table.

In: the verdicts of `snapshot`. Out: a report with refusals first, then warnings, then the other tables. Each kind has a
bounded number of lines, and one line with the number of omitted tables. A refusal makes the report an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.commands.check.report import Report, Result
from replica.daemon.status.page import size, span
from replica.errors import ReplicaError
from replica.schema.patterns import matcher
from replica.snapshot.check.table_verdict import describe_key
from replica.snapshot.check.verdict import ask_verdicts, require, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.commands.check.report import State
    from replica.handshake.registration import Steps
    from replica.snapshot.check.table_verdict import InitialVerdict
    from replica.snapshot.check.verdict import InitialVerdicts

LINES: Final = 40
"""Maximum number of lines for each kind of finding: a screen. The rest is counted, and --json has all of it."""
ALL: Final = ("*.*",)
PURPOSE: Final = "begin with the tables"


def ask_initial(patterns: Sequence[str], *, unkeyed: bool = False) -> Steps[InitialVerdicts]:
    """Return verdicts on the tables of these patterns, or on all of the server's own tables if there are none.

    Args:
        patterns: patterns of table names.
        unkeyed: whether the query has snapshotUnkeyed=whole.
    """
    matched = matcher(patterns or ALL)

    def wanted(database: str, table: str) -> bool:
        return matched.fits((database, table))

    return (yield from ask_verdicts(patterns or ALL, wanted, unkeyed=unkeyed))


def initial_report(server: str, verdicts: InitialVerdicts) -> Report:
    """Return the report on the tables of a server."""
    report = Report(f"the tables of {server}", purpose=PURPOSE)
    report.results += [Result(one.check, "missing", one.what, one.fix) for one in verdicts.refusals]
    report.results += [Result(one.check, "warning", one.what, one.fix) for one in verdicts.warnings]
    report.results += [Result(one.check, "note", one.what, one.fix) for one in verdicts.notes]
    report.results += _tables(verdicts)
    report.tables = [_as_json(one) for one in verdicts.tables]
    try:
        require(verdicts)
    except ReplicaError as error:
        report.error = error
    return report


def _tables(verdicts: InitialVerdicts) -> Iterator[Result]:
    if not verdicts.tables:
        yield Result("in all", "warning", "no table that the account can see has such a name now")
        return
    refused = verdicts.refused
    warned = [one for one in verdicts.tables if one.warnings]
    fine = [one for one in verdicts.read if not one.warnings]
    for one in refused[:LINES]:
        yield from (Result(one.shown, "missing", f"refused: {reason.what}", reason.fix) for reason in one.reasons)
    yield from _rest("refused", "missing", refused[LINES:])
    for one in warned[:LINES]:
        yield from [Result(one.shown, "ok", _reading(one))] * (one.state == "read")
        yield from (Result(one.shown, "warning", reason.what, reason.fix) for reason in one.warnings)
    yield from _rest("with warnings", "warning", warned[LINES:])
    yield from (Result(one.shown, "ok", _reading(one)) for one in fine[:LINES])
    yield from _rest("read by their keys", "ok", fine[LINES:])
    refusals = f"; {len(refused)} refused" if refused else ""
    read = "1 table is read" if len(verdicts.read) == 1 else f"{len(verdicts.read)} tables are read"
    yield Result("in all", "note", f"{read}: {_amount(verdicts.read)}{refusals}")


def _reading(verdict: InitialVerdict) -> str:
    how = f"by {describe_key(verdict)}" if verdict.key is not None else "in one go"
    return f"read {how}: {_amount([verdict])}"


def _rest(how: str, state: State, tables: Sequence[InitialVerdict]) -> Iterator[Result]:
    if not tables:
        return
    kinds = summary(tables)
    why = f" ({', '.join(f'{count} for {kind}' for kind, count in kinds.most_common())})" if kinds else ""
    yield Result(f"{len(tables)} more", state, f"{how}{why}: {_amount(tables)}; --json lists every table")


def _amount(tables: Sequence[InitialVerdict]) -> str:
    rows, octets = sum(one.rows for one in tables), sum(one.octets for one in tables)
    seconds = sum(one.seconds for one in tables)
    counted = f"about {_rounded(rows)} rows" if rows else "hardly any rows"
    lasting = f"about {span(round(seconds))}" if seconds >= 1 else "under a second"
    return f"{counted}, {size(octets)}, {lasting}"


def _rounded(count: int) -> str:
    """Return a number rounded to two significant digits, because it is an estimate."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return f"{round(count / unit) * unit:,}"


def _as_json(verdict: InitialVerdict) -> dict[str, object]:
    key = verdict.key
    return {
        "table": verdict.shown,
        "state": verdict.state,
        "key": None if key is None else {"index": key.index, "columns": verdict.key_columns, "ordered": key.ordered},
        "rows": verdict.rows,
        "bytes": verdict.octets,
        "seconds": round(verdict.seconds, 3),
        "reasons": [reason._asdict() for reason in verdict.reasons],
        "warnings": [reason._asdict() for reason in verdict.warnings],
    }
