"""Main loop of `tail`: turn parts of a log into lines for people or JSON.

`Tail.show` takes parts in log order and writes text to the output. It returns False after the requested number of
transactions. Transactions without selected rows keep their place among the others.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from replica.commands.dump.outputs.json_lines import program as json_program
from replica.commands.dump.rows.kernel_text import JSON, PLAIN
from replica.commands.dump.rows.rows_text import RowTexts
from replica.commands.dump.text import visible
from replica.commands.tail.lines import program as plain_program
from replica.protocol.plain_text import one_line
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from replica.commands.dump.rows.rows_text import Program
    from replica.commands.tail.lines import Transactions
    from replica.commands.tail.source import Changes, TransactionRows
    from replica.readers.log.reader import Part
    from replica.readers.rows.names import LiveNames
    from replica.readers.rows.progress import Notices
    from replica.readers.rows.reading import PreparedBefore, Reading
    from replica.readers.rows.without_rows import StatementChanges, WithoutRows
    from replica.rows.decode.batch import Groups
    from replica.rows.decode.slots import CompiledTable


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
