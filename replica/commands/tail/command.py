"""`mariadb-replica tail`: live row changes, from the relay log of a running daemon or directly from a primary.

The exit code is 0 after a requested stop (Ctrl-C, SIGTERM, --count, --no-follow). Otherwise it is the code of the error
that ended the command, or that prevented showing selected rows. Messages other than rows go to standard error.

`Tail` is the main loop: `Tail.show` takes parts of the log in order and writes lines for people or JSON to the output.
It returns False after the requested number of transactions. Transactions without selected rows keep their place among
the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, get_args

import click

from replica.commands.arguments import LogChoice, placed
from replica.commands.dump.outputs.json_lines import program as json_program
from replica.commands.dump.rows.kernel_text import JSON, PLAIN
from replica.commands.dump.rows.rows_text import RowTexts
from replica.commands.dump.text import visible
from replica.commands.outcome import interruptible, sleeper, standard_output
from replica.commands.shared_options import Parsed, tables_option
from replica.commands.tail import lines
from replica.commands.tail.lines import Transactions
from replica.commands.tail.lines import program as plain_program
from replica.commands.tail.source import (
    OPERATIONS,
    Changes,
    ChosenInDomains,
    Source,
    primary,
    relay_directory,
    warnings_logger,
)
from replica.errors import ConfigError
from replica.native.compile import interpret_meanwhile
from replica.options.values import start_of_log
from replica.protocol.gtid import GtidPosition, Order
from replica.protocol.plain_text import one_line
from replica.readers.log.following import Beginning, Follower, earliest, last_transactions, start_after, wait_for_log
from replica.readers.rows.names import DefinedBefore, LiveNames
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, PreparedBefore, Reading
from replica.readers.rows.without_rows import StatementChanges
from replica.relay_log.directory.lock import lock_holder
from replica.relay_log.location import RelayLocation
from replica.schema.patterns import refuse_capitals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from replica.commands.dump.rows.rows_text import Program
    from replica.commands.tail.source import TransactionRows
    from replica.readers.log.reader import Part
    from replica.readers.rows.names import Lookup
    from replica.readers.rows.without_rows import WithoutRows
    from replica.rows.decode.batch import Groups
    from replica.rows.decode.slots import CompiledTable
    from replica.schema.table import TableSchema


class Output(Protocol):
    """Output format of `tail`."""

    texts: RowTexts

    def statements(self, changes: list[WithoutRows]) -> None:
        """Show the changes in the next part that were logged as statements; the list may be empty."""

    def rows(self, part: Part, rows: TransactionRows) -> None:
        """Show some rows of one transaction."""

    def without_rows(self, part: Part, groups: Groups, number: int) -> bool:
        """Show a transaction without selected rows; return whether anything was shown."""


class JsonLines:
    """Output of one JSON object per row, in the format of `dump --json`. Changes without rows become notices."""

    def __init__(self, names: LiveNames, out: BinaryIO, notices: Notices) -> None:
        def compile_(table: CompiledTable) -> Program:
            return json_program(table, "both", unnamed=names.is_unnamed(table.table_map))

        self.texts = RowTexts(JSON, compile_)
        self._out = out
        self._notices = notices

    def statements(self, changes: list[WithoutRows]) -> None:
        for change in changes:
            names = visible(one_line(", ".join(change.names)))
            self._notices.say(f"{change.gtid} changed rows of {names} by a statement that was logged without them")

    def rows(self, part: Part, rows: TransactionRows) -> None:  # noqa: ARG002  (the other output needs it)
        first, last = rows.numbers[0], rows.numbers[-1]
        if last - first + 1 == len(rows.numbers):
            ends = rows.texts.ends
            self._out.write(rows.texts.data[int(ends[first - 1]) if first else 0 : int(ends[last])])
            return
        self._out.writelines(rows.text(number) for number in rows.numbers)

    def without_rows(self, part: Part, groups: Groups, number: int) -> bool:  # noqa: ARG002
        return False


class PrettyLines:
    """Output of lines for people."""

    def __init__(self, transactions: Transactions, out: BinaryIO) -> None:
        names = transactions.names
        self.texts = RowTexts(PLAIN, lambda t: plain_program(t, unnamed=names.is_unnamed(t.table_map)))
        self._transactions = transactions
        self._out = out

    def statements(self, changes: list[WithoutRows]) -> None:
        by_group: dict[int, list[WithoutRows]] = {}
        for change in changes:
            by_group.setdefault(change.start, []).append(change)
        self._transactions.changed = by_group

    def rows(self, part: Part, rows: TransactionRows) -> None:
        self._write(self._transactions.rows(part, rows))

    def without_rows(self, part: Part, groups: Groups, number: int) -> bool:
        return self._write(self._transactions.without_rows(part, groups, number))

    def _write(self, lines: Iterator[str]) -> bool:
        written = False
        for line in lines:
            self._out.write(line.encode("utf-8", "backslashreplace") + b"\n")
            written = True
        return written


@dataclass(slots=True)
class Tail:
    """Run of `tail`. `count`: number of transactions to show, None for no limit."""

    reading: Reading
    changes: Changes
    output: Output
    prepared: PreparedBefore
    count: int | None = None
    statements: StatementChanges | None = None
    """Finder of changes that were logged as statements; None to skip the search."""
    transactions: int = 0
    rows: int = 0
    without_rows: int = 0

    def show(self, part: Part) -> bool:
        """Show a part; return True to continue with the next part."""
        groups, shown = self.reading.groups(part), self.reading.shown(part)
        self.prepared.supply(self.reading, part)
        self._show_statements(part)
        after = 0
        for rows in self.changes.of(part):
            if not self._without_rows(part, groups, shown, range(after, rows.group)):
                return False
            if rows.first:
                if self.enough:
                    return False
                self.transactions += 1
            self.output.rows(part, rows)
            self.rows += len(rows.numbers)
            after = rows.group + 1
        return self._without_rows(part, groups, shown, range(after, len(groups))) and not self.enough

    def _show_statements(self, part: Part) -> None:
        if self.statements is not None:
            shown = self.reading.visible(part)
            found = [one for one in self.statements.of(part) if shown is None or one.start in shown]
            self.without_rows += len(found)
            self.output.statements(found)

    @property
    def enough(self) -> bool:
        return self.transactions == self.count

    def _without_rows(self, part: Part, groups: Groups, shown: npt.NDArray[np.bool_] | None, numbers: range) -> bool:
        for number in numbers:
            if shown is not None and not shown[number]:
                continue
            if self.enough:
                return False
            self.transactions += self.output.without_rows(part, groups, number)
        return True


CHECK_EVERY_S: Final = 2.0


class WriterWatch:
    """Watch of a relay log's writer. Call `check` at any rate; `report` gets a sentence when the writer stops or
    returns.
    """

    def __init__(
        self, directory: Path, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._report = report
        self._clock = clock
        self._next_s = clock()
        self._unwritten = False

    def check(self) -> None:
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + CHECK_EVERY_S
        with contextlib.suppress(OSError):  # this user may not read the lock file
            unwritten = lock_holder(self._directory) is None
            if unwritten != self._unwritten:
                self._unwritten = unwritten
                self._report(
                    f"no process writes {self._directory} now: no changes arrive until its replica runs again"
                    if unwritten
                    else f"{self._directory} is written again"
                )


STATEMENT: Final = "statement"


@click.command(short_help="Live row changes.")
@click.option("--from", "start", default="latest", show_default=True, metavar="WHERE", type=Parsed(start_of_log),
              help="latest, earliest, or after a GTID position: 0-1-4711.")  # fmt: skip
@click.option("-n", "last", type=click.IntRange(min=0), metavar="N",
              help="Begin with the last N transactions of a relay log, counted before all filters.")  # fmt: skip
@tables_option
@click.option("--op", "ops", multiple=True, type=click.Choice([*OPERATIONS, STATEMENT]),
              help="Only these; may be repeated. statement: DDL, and changes logged as SQL text.")  # fmt: skip
@click.option("--gtid-domain", "domains", multiple=True, type=click.IntRange(0, (1 << 32) - 1), metavar="N",
              help="Only transactions of this domain; may be repeated.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N transactions that were shown.")
@click.option("--no-follow", "once", is_flag=True, help="Stop at the end of the log as it is now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row change, as dump --json.")
@click.option("--full", is_flag=True, help="Whole values and statements, however long.")
@click.option("--color", "--colour", "colour", type=click.Choice(get_args(lines.When)), default="auto",
              show_default=True)  # fmt: skip
@click.option("--schema", type=click.Path(path_type=Path, dir_okay=False),
              help="File of CREATE TABLE statements, for tables whose columns have no names in the log.")  # fmt: skip
@placed
def tail(
    place: LogChoice,
    *,
    start: str | GtidPosition,
    last: int | None,
    tables: list[str],
    ops: tuple[str, ...],
    domains: tuple[int, ...],
    count: int | None,
    once: bool,
    as_json: bool,
    full: bool,
    colour: lines.When,
    schema: Path | None,
) -> None:
    """Show row changes as they are committed, transaction by transaction. All times are UTC.

    With --relay-dir, the changes come from a relay log, without locks and without the primary. With --host and --user,
    they come from the primary through a temporary replica.
    """
    interpret_meanwhile("replica.commands.dump.rows.kernel_rows", "replica.rows.decode.kernels.kernel_variant")
    if last is not None and (start != "latest" or place.relay_dir is None):
        raise ConfigError(
            "-n counts back from the end of a relay log.", hint="Without one use --from with a GTID, or earliest."
        )
    notices = Notices()
    with (
        contextlib.suppress(KeyboardInterrupt),
        interruptible(),
        standard_output() as out,
        _source(place, start) as source,
    ):
        sleep = _sleep(out, source)
        begin = _begin(source, start, last, sleep, once=once)
        if begin is None:
            return
        names = LiveNames(tables, notices, OPTIONS.policy, schema, _lookup_of(source, begin))
        paint = lines.Colours(lines.wanted(colour, os.environ, terminal=sys.stdout.isatty()))
        selection = ChosenInDomains(domains=frozenset(domains), start=begin.skip)
        reading = Reading([str(source.log.directory)], selection, names, notices)
        silent = not tables and (not ops or STATEMENT in ops)
        shown = Transactions(names, paint, silent=silent, full=full)
        output: Output = JsonLines(names, out, notices) if as_json else PrettyLines(shown, out)
        chosen = frozenset(OPERATIONS[op] for op in ops if op in OPERATIONS) if ops else None
        prepared = PreparedBefore(source.log, begin.place.location)
        texts = StatementChanges(names.wants) if not ops or STATEMENT in ops else None
        running = Tail(reading, Changes(reading, output.texts, chosen), output, prepared, count, texts)
        try:
            _run(source, running, Follower(source.log, begin.place, sleep), out, tables, once=once)
        finally:
            beside = f", {running.without_rows} statements without rows" if running.without_rows else ""
            _report(f"{running.transactions} transactions, {running.rows} rows{beside}")
    notices.close()
    if notices.exit_code:
        raise SystemExit(notices.exit_code)


def _source(place: LogChoice, start: str | GtidPosition) -> AbstractContextManager[Source]:
    if place.relay_dir is not None:
        return relay_directory(place.relay_dir, place.config() if place.connects else None)
    return primary(place.config(), start, warnings_logger())


def _sleep(out: BinaryIO, source: Source) -> Callable[[float], None]:
    pause = sleeper(out)
    watch = WriterWatch(source.log.directory, lambda text: click.echo(f"mariadb-replica: {one_line(text)}.", err=True))

    def sleep(seconds: float) -> None:
        out.flush()
        if source.replica is None:
            watch.check()
        else:
            source.replica.head()  # raises the error that ended it
        pause(seconds)

    return sleep


def _begin(
    source: Source,
    start: str | GtidPosition,
    last: int | None,
    sleep: Callable[[float], None],
    *,
    once: bool,
) -> Beginning | None:
    """Return where to begin; None if there is nothing to show and nothing to wait for."""
    log = source.log
    head = log.head() if once and source.replica is None else wait_for_log(log, sleep)
    if head is None or source.replica is not None:  # our own log begins at the requested start
        return None if head is None else Beginning(head)
    if last is not None:
        return last_transactions(log, head, last)
    if isinstance(start, GtidPosition):
        return start_after(log, head, start)
    return earliest(log, head) if start == "earliest" else Beginning(head)


def _lookup_of(source: Source, begin: Beginning) -> Lookup:
    before = DefinedBefore(source.log, begin.place.location)

    def lookup(database: str, table: str) -> TableSchema | None:
        known = before.table(database, table)
        return source.lookup(database, table) if known is None and source.lookup is not None else known

    return lookup


def _run(
    source: Source, running: Tail, follower: Follower, out: BinaryIO, tables: Sequence[str], *, once: bool
) -> None:
    log, begin = source.log, follower.reached
    _report(f"following {log.directory} from {begin.position or 'the beginning'} on; Ctrl-C ends it")
    until = _now(source) if once else None
    while until is None or follower.reached.position.compare(until) not in (Order.EQUAL, Order.AFTER):
        end = follower.wait()
        for part in follower.parts(end):
            if part.lower_case:
                refuse_capitals(tables)
            if not running.show(part):
                return
            out.flush()
        if source.replica is not None:
            log.purge_before(RelayLocation(end.location.file, 0))


def _now(source: Source) -> GtidPosition:
    """Return the end of the log, or of the primary's binlog."""
    if source.replica is not None:
        return source.replica.server_position()
    head = source.log.head()
    return GtidPosition() if head is None else head.position


def _report(text: str) -> None:
    """Print a message for a person who watches. Programs that read standard error expect only errors."""
    if sys.stderr.isatty():
        click.echo(f"mariadb-replica: {one_line(text)}", err=True)
