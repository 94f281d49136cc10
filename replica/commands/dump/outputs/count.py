"""Output of `dump --count`: transactions, row changes, event types and times of the files, without decoding rows.

In: the ranges of a `Reading`. Out: a `Summary`, as a table for people or one JSON object. Changes that were logged as
statements are counted by the tables in their text. Events of transactions that are not selected are not counted. Row
changes are counted once; the row changes of XA transactions are counted at their commit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from replica.commands.dump.outputs import kernel_count as k
from replica.commands.dump.outputs.json_lines import OPERATIONS
from replica.commands.dump.text import json_line, type_name, utc
from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import BINLOG_MAGIC, EventType, event_name
from replica.protocol.plain_text import one_line
from replica.readers.files.ranges import relocated
from replica.readers.rows.names import CountedTables
from replica.readers.rows.reading import data_type, gtid_at
from replica.readers.rows.without_rows import ANY_TABLE, StatementChanges
from replica.rows.decode.batch import Groups
from replica.rows.decode.decode import UnreadableGroup, count_by_table
from replica.rows.scan import records as r
from replica.rows.scan.scan import as_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.readers.log.reader import Part
    from replica.readers.rows.reading import Reading
    from replica.rows.decode.batch import TableName
    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.known_tables import TableName as StatementTable

MAX_NAMED = 4096
"""Maximum number of tables by which statements are counted. Further tables count as any table."""


@dataclass(slots=True)
class Domain:
    """The first and last GTID of a domain, in the order of the log."""

    first: str
    last: str
    groups: int = 0
    last_number: int = 0
    out_of_order: int = 0
    """Number of transactions whose sequence number is not above the previous one."""
    first_out_of_order: str | None = None

    @property
    def disorder(self) -> str:
        """Text about out-of-order transactions of the domain; '' if there are none."""
        if self.first_out_of_order is None:
            return ""
        return f"; {self.out_of_order:,} out of order, the first one {self.first_out_of_order}"


@dataclass(slots=True)
class Summary:
    """Counts of all files so far. `rows`: for each table, int64 counts of its row changes by operation."""

    files: list[str] = field(default_factory=list)
    domains: dict[int, Domain] = field(default_factory=dict)
    first_commit: int | None = None
    last_commit: int | None = None
    rows: dict[TableName, npt.NDArray[np.int64]] = field(default_factory=dict)
    types: Records = field(default_factory=lambda: np.zeros(k.TYPES, k.TypeCount.dtype))
    skipped: Counter[str] = field(default_factory=Counter)
    statements: int = 0
    """Number of changes that were logged as statements, without rows."""
    changed_by_statements: Counter[StatementTable | None] = field(default_factory=Counter)
    """The same number by table. None means any table."""
    _texts: StatementChanges | None = None

    def add(self, part: Part, reading: Reading) -> None:
        """Count the transactions, rows and events of the part `part` of `reading`."""
        if not self.files or self.files[-1] != part.name:
            self.files.append(part.name)
        if not part.piece.whole:
            self.skipped["events of a transaction without its end"] += sum(1 for _ in part.walk())
            return
        found, shown = reading.scan(part), reading.shown(part)
        groups = Groups(found.groups, found.expansion)
        if part.defines:
            reading.names.learn(part)
        broken = self._count_rows(part, reading, reading.carry(part), shown)
        selected = shown
        if broken:
            shown = np.ones(len(groups), np.bool_) if shown is None else shown.copy()
            shown[[one.number for one in broken]] = False
            if not reading.skip_damaged:
                shown[broken[0].number :] = False
        self._count_types(part, groups, shown)
        self._count_statements(part, reading, groups, shown)
        self._count_groups(part, groups, shown)
        if broken and not reading.skip_damaged:
            raise reading.advised(broken[0].error)
        for one in broken:
            reading.report_skipped(part, one)
        self.skipped["transactions that cannot be read"] += len(broken)
        self.skipped["transactions that a crash cut short"] += found.cut_groups
        undone = found.groups["ending"] == r.ENDS_ROLLBACK
        self.skipped["transactions that were rolled back"] += int(undone.sum())
        for kind, count in found.skipped.items():
            self.skipped[f"unknown events marked as ignorable, {event_name(kind)}"] += count
        if selected is not None:
            self.skipped["transactions that were not asked for"] += int((~selected).sum())

    def _count_rows(
        self, part: Part, reading: Reading, carried: Sequence[CarriedGroup], shown: npt.NDArray[np.bool_] | None
    ) -> list[UnreadableGroup]:
        """Count the rows of these groups, and return the groups whose images cannot be walked.

        Such groups are found by halving, and their rows are not counted. If damage ends the counting, the groups after
        the first damaged one are not counted either.
        """
        found = reading.scan(part)
        try:
            counted = count_by_table(found, CountedTables(reading.names), carried=carried, shown=shown)
        except ProtocolError as error:
            numbers = np.arange(len(found.groups)) if shown is None else np.flatnonzero(shown)
            if len(numbers) == 1:
                return [UnreadableGroup(int(numbers[0]), relocated(error, part.name, part.piece.offset))]
            broken: list[UnreadableGroup] = []
            for half in np.array_split(numbers, 2):
                mask = np.zeros(len(found.groups), np.bool_)
                mask[half] = True
                broken += self._count_rows(part, reading, carried, mask)
                if broken and not reading.skip_damaged:
                    break
            return broken
        for name, counts in counted.items():
            self.rows[name] = self.rows.get(name, 0) + counts
        return []

    def _count_types(self, part: Part, groups: Groups, shown: npt.NDArray[np.bool_] | None) -> None:
        data = as_bytes(part.piece.data)
        start = len(BINLOG_MAGIC) if data[: len(BINLOG_MAGIC)].tobytes() == BINLOG_MAGIC else 0
        spans = np.array([(start, len(data))], k.SpanRecord.dtype)
        if shown is not None:
            spans = np.empty(np.count_nonzero(shown), k.SpanRecord.dtype)
            spans["start"], spans["end"] = groups.start[shown], groups.end[shown]
        bad = k.count_types(address(data), address(spans), len(spans), address(self.types))
        if bad:
            raise ProtocolError(f"{part.name}: no event header", offset=part.piece.offset + bad - 1)

    def _count_statements(
        self, part: Part, reading: Reading, groups: Groups, shown: npt.NDArray[np.bool_] | None
    ) -> None:
        self._texts = self._texts or StatementChanges(reading.names.wants)
        visible = None if shown is None else set(groups.start[shown].tolist())
        for found in self._texts.of(part):
            if visible is None or found.start in visible:
                self.statements += 1
                for name in found.tables or (None,):
                    known = name in self.changed_by_statements or len(self.changed_by_statements) < MAX_NAMED
                    self.changed_by_statements[name if known else None] += 1

    def _count_groups(self, part: Part, groups: Groups, shown: npt.NDArray[np.bool_] | None) -> None:
        numbers = np.arange(len(groups)) if shown is None else np.flatnonzero(shown)
        if not len(numbers):
            return
        times = groups.commit_ts[numbers]
        self.first_commit = min(int(times.min()), self.first_commit or int(times.min()))
        self.last_commit = max(int(times.max()), self.last_commit or 0)
        domains = groups.domain[numbers]
        for domain in np.unique(domains).tolist():
            of_domain = numbers[domains == domain].tolist()
            first, last = (gtid_at(part, groups, number) for number in (of_domain[0], of_domain[-1]))
            known = self.domains.setdefault(domain, Domain(first, last))
            known.last = last
            if data_type(part, groups, of_domain[0]) == EventType.GTID:  # MySQL's numbers have another meaning
                self._note_order(known, part, groups, np.array(of_domain))
            known.groups += len(of_domain)

    def _note_order(self, domain: Domain, part: Part, groups: Groups, numbers: npt.NDArray[np.int64]) -> None:
        sequence = groups.seq_no[numbers].astype(np.int64).view(np.uint64)
        before = np.concatenate([np.array([domain.last_number], np.uint64), sequence[:-1]])
        back = np.flatnonzero(sequence <= before)
        if domain.first_out_of_order is None and len(back):
            domain.first_out_of_order = gtid_at(part, groups, int(numbers[back[0]]))
        domain.out_of_order += len(back)
        domain.last_number = int(sequence[-1])

    @property
    def groups(self) -> int:
        return sum(domain.groups for domain in self.domains.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "transactions": self.groups,
            "first_commit": None if self.first_commit is None else utc(self.first_commit),
            "last_commit": None if self.last_commit is None else utc(self.last_commit),
            "domains": [
                {
                    "domain": number,
                    "transactions": one.groups,
                    "first": one.first,
                    "last": one.last,
                    "out_of_order": one.out_of_order,
                    "first_out_of_order": one.first_out_of_order,
                }
                for number, one in sorted(self.domains.items())
            ],
            "tables": [
                {"database": name.database, "table": name.table}
                | {word: int(counts[op]) for op, word in OPERATIONS.items()}
                for name, counts in self._by_rows()
            ],
            "statement_dml": {
                "statements": self.statements,
                "tables": [
                    {"database": name and name[0], "table": name and name[1], "statements": count}
                    for name, count in self.changed_by_statements.most_common()
                ],
            },
            "events": [
                {"type": type_name(kind), "code": kind, "events": int(events), "bytes": int(size)}
                for kind, (events, size) in enumerate(self.types.tolist())
                if events
            ],
            "skipped": {reason: count for reason, count in self.skipped.items() if count},
        }

    def _by_rows(self) -> list[tuple[TableName, npt.NDArray[np.int64]]]:
        return sorted(self.rows.items(), key=lambda item: (-int(item[1].sum()), item[0]))

    def as_text(self) -> str:
        """Return tables for people."""
        times = ""
        if self.first_commit is not None and self.last_commit is not None:
            times = f", committed {utc(self.first_commit)} to {utc(self.last_commit)} UTC"
        lines = [f"{len(self.files)} file{'s'[: len(self.files) != 1]}, {self.groups:,} transactions{times}"]
        lines += [
            f"  domain {number}: {one.groups:,} transactions, {one.first} to {one.last}{one.disorder}"
            for number, one in sorted(self.domains.items())
        ]
        tables = [
            (one_line(".".join(name)), *(f"{int(count):,}" for count in counts)) for name, counts in self._by_rows()
        ]
        lines += _columns(("row changes of", "inserts", "updates", "deletes"), tables)
        changed: list[tuple[str, ...]] = [
            (one_line(ANY_TABLE if name is None else ".".join(name)), f"{count:,}")
            for name, count in self.changed_by_statements.most_common()
        ]
        lines += _columns(("changes logged as statements, without rows, of", "statements"), changed)
        types = [
            (type_name(kind), f"{events:,}", f"{size:,}")
            for kind, (events, size) in enumerate(self.types.tolist())
            if events
        ]
        total = [int(self.types[count].sum()) for count in ("events", "size")]
        lines += _columns(("event type", "events", "bytes"), [*types, ("in all", f"{total[0]:,}", f"{total[1]:,}")])
        lines += _columns(("left out", ""), [(reason, f"{count:,}") for reason, count in self.skipped.items() if count])
        return "\n".join(lines) + "\n"


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Align lines: the first column to the left, all other columns to the right. Without rows there are no lines."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "",
        *(
            "  ".join(
                text.ljust(width) if i == 0 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (head, *rows)
        ),
    ]


def write_counts(reading: Reading, out: BinaryIO, *, as_json: bool) -> None:
    """Write the summary as a table or as JSON to `out`, even if damage or a torn end stops the reading."""
    summary = Summary()
    try:
        for part in reading.parts():
            summary.add(part, reading)
    finally:
        out.write(json_line(summary.as_json()) if as_json else summary.as_text().encode("utf-8", "backslashreplace"))
