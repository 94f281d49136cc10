"""Verdict on a server and its tables: whether a snapshot can start and the stream can follow it.

`judge` turns `TableFacts` into `InitialVerdicts`, and `require()` raises one error with every refusal and its fix. A
refusal of the whole server means that rows would be wrong in every table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, PrerequisiteError
from replica.handshake.primary.server import grant
from replica.schema.patterns import table_pattern
from replica.schema.text.naming import quoted, quoted_table
from replica.snapshot.check.facts import ask_table_facts
from replica.snapshot.check.table_verdict import InitialVerdict, Reason, has_images_before, judge_table
from replica.snapshot.errors import NO_SELECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replica.handshake.registration import Steps
    from replica.snapshot.check.facts import TableFacts

NAMED: Final = 20
"""Maximum number of tables that one error names; `check --initial` lists all of them."""
FIXES: Final = 5
"""Maximum number of fixes in one error's hint."""
ABSENT: Final = "absent"
"""Identifier of the check that refuses a table because it does not exist."""
SHOWN_CHARACTERS: Final = 240
"""Maximum number of characters of one table's reasons in an error."""

_FULL: Final = "SET GLOBAL binlog_row_image = 'FULL'; (open sessions keep the old setting)"
_CONFIGURED: Final = "under [mariadb] in the server's configuration file and restart it"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialVerdicts:
    """Verdicts on a server (`refusals`, `warnings`, `notes`) and on its tables for a query that starts with a snapshot.

    `tables` are in byte order of their names, which is the order of reading.
    """

    refusals: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()
    tables: tuple[InitialVerdict, ...] = ()

    @property
    def read(self) -> tuple[InitialVerdict, ...]:
        """Tables that will be read."""
        return tuple(one for one in self.tables if one.state == "read")

    @property
    def refused(self) -> tuple[InitialVerdict, ...]:
        """Tables that keep the query from starting."""
        return tuple(one for one in self.tables if one.state == "refused")

    @property
    def seconds(self) -> float:
        """Estimated total reading time in seconds."""
        return sum(one.seconds for one in self.read)


def ask_verdicts(
    patterns: Sequence[str], wants: Callable[[str, str], bool], *, settled: bool = False, unkeyed: bool = False
) -> Steps[InitialVerdicts]:
    """Ask for the facts about the tables that match `patterns` and that `wants` accepts, and judge them.

    `settled` and `unkeyed` are the arguments of `judge`.
    """
    return judge((yield from ask_table_facts(patterns, wants)), settled=settled, unkeyed=unkeyed)


def judge(facts: TableFacts, *, settled: bool = False, unkeyed: bool = False) -> InitialVerdicts:
    """Return the verdicts on a server and on all selected tables.

    Args:
        facts: Answers of the server.
        settled: The rows must hold at a position before the read (content=tables), so changes must be undone.
        unkeyed: Accept tables that can only be read whole (snapshotUnkeyed).
    """
    tables = [judge_table(one, facts, unkeyed=unkeyed) for one in facts.tables]
    tables += [_unseen(name, answer, facts) for name, answer in facts.unseen]
    tables.sort(key=lambda one: (one.name[0].encode(), one.name[1].encode()))
    seconds = sum(one.seconds for one in tables if one.state == "read")
    return InitialVerdicts(
        refusals=tuple(_refusals(facts, settled=settled)),
        warnings=tuple(_warnings(facts, seconds)),
        notes=tuple(_notes(facts)),
        tables=tuple(one for one in tables if one.name in facts.named or not _is_view(one)),
    )


def require(verdicts: InitialVerdicts, *, table_by_table: bool = False) -> None:
    """Raise one error with all refusals if the server or a table is refused.

    With `table_by_table`, an unreadable table does not stop the readable ones. Then only a missing table, or a
    selection without any readable table, is refused.

    Raises:
        AuthenticationError: Only SELECT on tables is missing.
        PrerequisiteError: A server setting or a table prevents the snapshot.
    """
    refused = verdicts.refused
    if table_by_table and verdicts.read:
        refused = tuple(one for one in refused if ABSENT in {reason.check for reason in one.reasons})
    if not verdicts.refusals and not refused:
        return
    parts = [one.what for one in verdicts.refusals]
    parts += [f"{one.shown}: {_shortened('; '.join(reason.what for reason in one.reasons))}" for one in refused[:NAMED]]
    more = f"; and {len(refused) - NAMED} more tables" if len(refused) > NAMED else ""
    fixes = [one.fix for one in verdicts.refusals] + [reason.fix for one in refused for reason in one.reasons]
    fixes = list(dict.fromkeys(filter(None, fixes)))
    shown = " ".join(f"({number}) {fix}" for number, fix in enumerate(fixes[:FIXES], 1))
    further = f" and {len(fixes) - FIXES} more;" if len(fixes) > FIXES else ""
    message = f"the snapshot of the tables cannot start: {'; '.join(parts)}{more}."
    hint = f"Fix: {shown}{further} mariadb-replica check --initial shows everything."
    checks = {reason.check for one in refused for reason in one.reasons} | {one.check for one in verdicts.refusals}
    if checks == {"select"}:
        raise AuthenticationError(message, code=NO_SELECT, sqlstate="42000", hint=hint)
    raise PrerequisiteError(message, hint=hint)


def warnings_of(verdicts: InitialVerdicts) -> Iterator[str]:
    """Yield log lines with the warnings about the server and the readable tables; their number is bounded."""
    yield from (_line("", one) for one in verdicts.warnings)
    warned = [one for one in verdicts.tables if one.warnings]
    yield from (_line(f"{one.shown}: ", reason) for one in warned[:NAMED] for reason in one.warnings)
    if len(warned) > NAMED:
        yield f"and warnings about {len(warned) - NAMED} more tables; mariadb-replica check --initial shows everything"


def _line(subject: str, reason: Reason) -> str:
    return _shortened(f"{subject}{reason.what}") + (f" (fix: {reason.fix})" if reason.fix else "")


def _is_view(verdict: InitialVerdict) -> bool:
    return bool(verdict.reasons) and verdict.reasons[0].check == "view"


def _unseen(name: tuple[str, str], answer: str, facts: TableFacts) -> InitialVerdict:
    if answer == "denied":
        what = f"the account {facts.account} has no SELECT on it, so the server does not show whether it exists"
        reason = Reason("select", what, grant("SELECT", facts.account, on=quoted_table(name)))
    else:
        reason = Reason(ABSENT, "it does not exist on the server", "check the spelling")
    return InitialVerdict(name=name, state="refused", reasons=(reason,))


def _refusals(facts: TableFacts, *, settled: bool) -> Iterator[Reason]:
    known = facts.variables
    if known.get("log_bin", "").upper() not in ("ON", "1"):
        what = "the binary log is off (log_bin): changes during the snapshot would be lost"
        yield Reason("log_bin", what, f"put log_bin=binlog {_CONFIGURED}")
    if known.get("binlog_storage_engine"):
        what = f"the binlog is stored by {known['binlog_storage_engine']}, which does not show how far commits are"
        yield Reason("binlog_storage_engine", what, "leave binlog_storage_engine out of its configuration file")
    if known.get("binlog_format") != "ROW":
        what = f"binlog_format is {known.get('binlog_format')}: changes logged as SQL text cannot be applied to rows"
        yield Reason("binlog_format", what, "SET GLOBAL binlog_format = 'ROW'; (open sessions keep the old format)")
    if settled and not has_images_before(facts):
        what = (
            f"binlog_row_image is {known.get('binlog_row_image')}: changes during the snapshot have to be undone "
            "back to the position of load(), which needs full before images"
        )
        instead = "start a stream with a snapshot (startingPosition=initial)"
        yield Reason("binlog_row_image", what, f"{_FULL} or {instead}")
    if facts.replicates_from and known.get("log_slave_updates", "").upper() not in ("ON", "1"):
        what = "the server is a replica with log_slave_updates=OFF: replicated changes are not in its binlog"
        yield Reason("log_slave_updates", what, f"put log_slave_updates=ON {_CONFIGURED}, or read from its primary")
    if not facts.repeatable:
        what = "the isolation level REPEATABLE READ cannot be set in a session: each statement would see different rows"
        yield Reason(
            "tx_isolation", what, "connect to the server itself, not through a proxy that intercepts the setting"
        )


def _warnings(facts: TableFacts, seconds: float) -> Iterator[Reason]:
    if not has_images_before(facts):
        what = (
            f"binlog_row_image is {facts.variables.get('binlog_row_image')}: changes with incomplete row images cannot "
            "be undone: a batch whose rows are lost on disk before it is committed ends the query, and content=tables "
            "is refused"
        )
        yield Reason("binlog_row_image", what, _FULL)
    if facts.was_replica and not facts.replicates_from and facts.variables.get("log_slave_updates", "").upper() != "ON":
        what = "log_slave_updates is OFF, and the server was a replica: if it becomes one again, changes are missing"
        yield Reason("log_slave_updates", what, f"put log_slave_updates=ON {_CONFIGURED}")
    if facts.variables.get("wsrep_on", "").upper() in ("ON", "1"):
        what = "a Galera node: snapshots are untested on a cluster"
        yield Reason("wsrep_on", what, "name one node in host, and compare the first load with the source")
    for pattern in facts.hiding:
        what = f"the account does not see tables of {pattern} on which it has no privilege: they would not be read"
        database = table_pattern(pattern).one_database
        on = pattern if database is None else f"{quoted(database)}.*"
        yield Reason("grant", what, grant("SELECT", facts.account, on=on))
    if facts.expiry_s is not None and facts.expiry_s < 2 * seconds:
        what = (
            f"the server removes binlogs after {facts.expiry_s / 3600:.4g} h, and reading may take "
            f"{seconds / 3600:.2g} h: if the relay log is lost before the end, the snapshot starts over"
        )
        days = max(1, round(4 * seconds / 86_400) + 1)
        yield Reason("retention", what, f"SET GLOBAL expire_logs_days = {days};")


def _notes(facts: TableFacts) -> Iterator[Reason]:
    known = facts.variables
    standing = known.get("tx_isolation") or known.get("transaction_isolation") or "REPEATABLE-READ"
    if facts.isolation != "REPEATABLE-READ":
        whose = "tx_isolation" if facts.isolation == standing else "init_connect"
        yield Reason(
            "tx_isolation", f"sessions start with {facts.isolation} ({whose}): this client sets REPEATABLE READ"
        )
    if known.get("rpl_semi_sync_master_enabled") == "ON":
        point = known.get("rpl_semi_sync_master_wait_point", "")
        if point == "AFTER_SYNC":
            what = "AFTER_SYNC: a commit is in the binlog before others see it; each chunk takes that into account"
            yield Reason("semi_sync wait", what)


def summary(tables: Sequence[InitialVerdict]) -> Counter[str]:
    """Count tables by the identifier of their first reason."""
    return Counter(reason.check for one in tables for reason in one.reasons[:1])


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
